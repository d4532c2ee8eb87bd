# Each target is a line or two; the work is done by the script that it names.
.DEFAULT_GOAL := help
.PHONY: help cluster images image-operator image-runtime down test chaos demo constraints
ACCELERATOR ?= cuda

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

cluster: ## bring a local cluster up and print its kubeconfig
	@localcluster/up

images: cluster ## build operator and CPU runtime and load them into the local cluster
	@localcluster/images

image-operator: ## build the operator's image
	@localcluster/image operator

image-runtime: ## build the runtime's image and import it; ACCELERATOR=cuda (default) or cpu
	@image=$$(localcluster/image runtime $(ACCELERATOR)) && localcluster/smoke "$$image" && echo "$$image"

down: ## stop the local cluster
	@localcluster/down

test: ## everything that CI checks
	@tests/run

chaos: ## faults of operator and cluster in their long form (an hour)
	@tests/run chaos

demo: ## a job from start to end on the local cluster
	@examples/demo

constraints: ## resolve the packages of the images again
	@constraints/update
