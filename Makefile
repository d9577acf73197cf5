# The commands of this project. Each makes the environment that it needs, once, in the user's cache.
.DEFAULT_GOAL := help
.PHONY: run test lint generate lock update-builder-data public-kernels bench bench-kernel gpu-bench gpu-test bench-docs clean help

ACTIONS := scripts/kernel-actions
# Runs the interpreter of the development environment: the suite with all that its tests and checks need.
PYTHON = python=$$($(ACTIONS) environment --for dev) && "$$python" -I

run:  ## Take the example kernel from source to a Hub on this machine and back
	@$(ACTIONS) pipeline

test:  ## Run the tests (ALL=1: also those that take minutes; ARGS="-k matrix" selects some)
	@$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(if $(ALL),,-m "not slow") $(ARGS)

gpu-test:  ## Test what `test` does on this machine's GPU, into KA_GPU_OUT, without network (ARGS="-k memcheck")
	@tests/gpu/run.sh $(ARGS)

lint:  ## Check the style, the types, the actions and the workflows
	@$(PYTHON) scripts/lint.py

generate:  ## Write what is generated: actions, their short paths, and their documentation
	@$(PYTHON) scripts/generate.py

lock:  ## Resolve requirements/*.in into requirements/*.txt
	@$(PYTHON) scripts/lock.py

update-builder-data:  ## Read what each revision of the builder can build from a checkout (DIR=<checkout>)
	@$(PYTHON) scripts/update_builder_data.py $(DIR)

public-kernels:  ## Take all kernels of a checkout through the suite (DIR=<checkout> BUILDER=<checkout> ARGS="--only relu")
	@$(PYTHON) scripts/public_kernels $(DIR) $(if $(BUILDER),--builder $(BUILDER)) $(ARGS)

bench:  ## Time the planner, compliance and uploads on this machine
	@$(PYTHON) tests/bench/bench.py
	@$(PYTHON) tests/bench/bench_compliance.py
	@$(PYTHON) tests/bench/bench_upload.py

bench-kernel:  ## Measure the kernel on this machine's CPU, into BENCH_OUT (ARGS="--only *uint8*")
	@benchmarks/run.sh cpu $(ARGS)

gpu-bench:  ## Build, test and measure the kernel on this machine's GPU, into BENCH_OUT, without network
	@benchmarks/run.sh gpu $(ARGS)

bench-docs:  ## Fill docs/benchmarks.md from the reports in BENCH_OUT
	@mkdir -p benchmarks/results
	@for name in cpu gpu; do for kind in json svg png; do file="$(or $(BENCH_OUT),build/bench)/$$name.$$kind"; \
	  [ ! -f "$$file" ] || cp "$$file" benchmarks/results/; done; done
	@$(PYTHON) scripts/kernel_actions/benchmark/document.py docs/benchmarks.md benchmarks/results

clean:  ## Remove what `make run` and the builders left in this folder
	@find build -mindepth 1 -maxdepth 1 ! -name action.yml -exec rm -rf {} + 2>/dev/null || true

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 28
