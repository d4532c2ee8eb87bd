"""The operator of ColocatedRLJobs."""
