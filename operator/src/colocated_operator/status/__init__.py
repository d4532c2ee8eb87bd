"""What is written back to the ColocatedRLJob: status, conditions, Events. Pure."""
