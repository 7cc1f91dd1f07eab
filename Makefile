# make demo: set everything up and serve the app.  make test: set everything up and try each claim.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVERS := build/servers-venv
MCP := build/mcp-venv
PRETRAINED := build/pretrained
LLAMACPP := build/llamacpp
TASKS := build/tasks-venv
TRAIN := build/train-venv
ZIG := build/zig-venv
# one thread a library: the engine has threads of its own
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export GRADIO_ANALYTICS_ENABLED := False
# glibc: threads share two heaps, so that freed memory is used again
export MALLOC_ARENA_MAX ?= 2
# modules are compiled once, when they are first imported; pip would compile four times as many
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

# an environment in which .venv's packages are there too: pip installs only what is added or differs
define over_venv
$(PYTHON) -m venv $(1)
echo "import site; site.addsitedir('$$(echo $(CURDIR)/$(VENV)/lib/python3*/site-packages)')" \
	> $$(echo $(1)/lib/python3*/site-packages)/venv.pth
$(1)/bin/python $(INSTALL) -r $(2)
endef

.PHONY: demo test test-more pytest js test-processors test-sse test-avx2 test-package test-servers test-mcp test-pretrained test-llamacpp test-tasks test-train lint models engine site docs clean

demo: $(VENV)/.app
	$(BIN)/python app.py

# every law, number and security claim, and what a visitor does first on each page
test: $(VENV)/.dev
	$(MAKE) --jobs=2 lint pytest ONLY='-m "not more"'
	@echo "Left out: other cases, and details of the pages (make test-more)"

# the other cases of each kind (lessons, runs, results, architectures), the details of the pages, the
# generated problem sets, what documents show, and a second browser
test-more: $(VENV)/.dev
	$(MAKE) pytest ONLY='-m more'

# three processes for two cores, since each waits for its pages 40% of the time; the longest files
# first (tests/conftest.py), each file in one process, which starts its app and its browser once
pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ONLY)

# What is compared with recorded numbers, computed as an x86-64 processor without AVX does and as one
# with AVX2 does: each library has a variable of its own.
SSE := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
	OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR"
# each in one process, which collects and sums up once; both at once with --jobs=2. A processor
# without AVX-512 computes as one with AVX2 does, and `make test` has tried it.
test-processors: test-sse $(if $(shell grep -s avx512 /proc/cpuinfo),test-avx2)
test-sse: $(VENV)/.dev
	$(SSE) $(BIN)/python -m pytest -p no:cacheprovider $(KINDS)
test-avx2: $(VENV)/.dev
	$(AVX2) $(BIN)/python -m pytest -p no:cacheprovider $(KINDS)
KINDS := -m "recorded and not browser and not more"

# the page's scripts: types, lint and the tests that need no browser; needs node and npm
js: node_modules/.ready
	npm run --silent types
	npm run --silent lint
	npm run --silent test

# of tests that run apart: their failures are not among those of the others, which may run meanwhile
APART := -o addopts=-q -p no:cacheprovider

# a built wheel in an empty environment
test-package: $(VENV)/.dev
	$(BIN)/python -m pytest $(APART) tests/packaging

# a real vLLM on the CPU, in an environment of its own: 5 GB, and some ten minutes the first time
test-servers: $(VENV)/.dev $(SERVERS)/.ready
	$(BIN)/python -m pytest $(APART) tests/servers

# the endpoints as tools, called by a real client; apart, since the extra pins other versions
test-mcp: $(MCP)/.ready
	$(MCP)/bin/python -m pytest $(APART) tests/mcp_client

# a pretrained model of the registry: 93 MB from the package registry
test-pretrained: $(PRETRAINED)/.ready
	HF_HOME=$(abspath $(PRETRAINED)/hf) HF_HUB_OFFLINE=1 \
		$(BIN)/python -m pytest $(APART) tests/pretrained

# a real llama.cpp server on the CPU: 34 MB from the package registry
test-llamacpp: $(VENV)/.dev $(LLAMACPP)/.ready
	PYTHONPATH=$(abspath $(LLAMACPP)) $(BIN)/python -m pytest $(APART) tests/llamacpp

# IFEval's checkers, 380 MB with what they need; apart, since few want them
test-tasks: $(TASKS)/.ready
	$(TASKS)/bin/python -m pytest $(APART) tests/ifeval

# a reward model of one's own, trained by TRL; apart, since few want it
test-train: $(TRAIN)/.ready
	$(TRAIN)/bin/python -m pytest $(APART) tests/train

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/prose.py

models: $(VENV)/.dev
	$(BIN)/python -m tools.embedded

# pages that any host of files serves: Watch that draws in the browser, the gallery, the glossary
site: $(VENV)/.app
	$(BIN)/python -m components.site build/site

# the API reference, from the docstrings: build/docs/index.html
docs: $(VENV)/.dev
	$(BIN)/pdoc --docformat google --output-directory build/docs qalign_core qalign_core.errors \
		qalign_core.contract qalign_core.chain.moves.move qalign_core.chain.moves.suffix \
		qalign_core.rewards.functions qalign_core.decide.answers.extraction \
		qalign_core.decide.answers.graders qalign_study.export.dataframes \
		qalign_study.measure.diagnostics qalign_study.measure.results qalign_study.sets.generated

# the kernel that browsers run (assets/web/engine/net.c), by a C compiler that comes as a package
engine: $(ZIG)/.ready
	cd assets/web/engine && $(abspath $(ZIG))/bin/python -m ziglang cc --target=wasm32-freestanding \
		-O3 -msimd128 -nostdlib -Wl,--no-entry -Wl,--strip-all -o net.wasm net.c
	cd assets/web/engine && chmod 644 net.wasm && sha256sum net.c net.wasm > net.sha256

clean:
	rm -rf $(VENV) build node_modules

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: requirements.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/.dev: requirements.txt requirements-dev.txt | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -r requirements-dev.txt
	$(BIN)/python $(INSTALL) --no-deps --editable .
	touch $@ $(VENV)/.app

node_modules/.ready: package.json package-lock.json .npmrc
	npm ci --silent
	touch $@

# torchvision breaks vLLM's import; its command looks up a distribution called "vllm"
$(SERVERS)/.ready: requirements-servers.txt
	$(PYTHON) -m venv $(SERVERS)
	$(SERVERS)/bin/python $(INSTALL) -r requirements-servers.txt
	$(SERVERS)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	$(SERVERS)/bin/python tests/servers/name_vllm.py
	touch $@

$(ZIG)/.ready:
	$(PYTHON) -m venv $(ZIG)
	$(ZIG)/bin/python $(INSTALL) ziglang==0.17.1
	touch $@

$(MCP)/.ready: requirements.txt requirements-mcp.txt | $(VENV)/.dev
	$(call over_venv,$(MCP),requirements-mcp.txt)
	touch $@

$(TASKS)/.ready: requirements.txt requirements-tasks.txt | $(VENV)/.dev
	$(call over_venv,$(TASKS),requirements-tasks.txt)
	touch $@

$(TRAIN)/.ready: requirements.txt requirements-train.txt | $(VENV)/.dev
	$(call over_venv,$(TRAIN),requirements-train.txt)
	touch $@

$(LLAMACPP)/.ready: requirements-llamacpp.txt | $(VENV)/.dev
	$(BIN)/python $(INSTALL) --no-deps --upgrade --target $(LLAMACPP) \
		-r requirements-llamacpp.txt
	touch $@

$(PRETRAINED)/lib/.ready: requirements-pretrained.txt | $(VENV)/.dev
	$(BIN)/python $(INSTALL) --no-deps --upgrade --target $(PRETRAINED)/lib \
		-r requirements-pretrained.txt
	touch $@

$(PRETRAINED)/.ready: $(PRETRAINED)/lib/.ready tests/pretrained/convert.py
	$(BIN)/python tests/pretrained/convert.py $(PRETRAINED)
	touch $@
