# The entry point of the project. Each target sets up what it needs: on Debian as root it installs
# missing packages, elsewhere it lists them. Files under .build/stamp record what was built, so a
# second call rebuilds only what changed. `make -j` is supported.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo hub check format test quick test-all test-slow frameworks bench peers soak goals newest fuzz docs gen operators models wasm native sanitize threads web extension wheel wheels release notebooks jupyterlite clean

PYTHON ?= $(firstword $(shell command -v python3.11; command -v python3))
PORT   ?= 8017
HUB    ?= 8765
demo_adapter := --lora-r 16 --lora-alpha 32 --learning-rate 4e-3
TESTS  ?= tests
# one more process than processors, since many tests wait for browsers and for time
JOBS   ?= $(shell $(PYTHON) -c 'import os; n = getattr(os, "sched_getaffinity", None); print((len(n(0)) if n else os.cpu_count() or 1) + 1)')
FUZZ   ?= 20000000
RUNS   ?= 200
FUZZ_ONNX ?= 20000
FUZZ_FILES ?= 100000
FUZZ_GRAPHS ?= 20000

# Each test process would compile the package, and pytest its tests, again.
unexport PYTHONDONTWRITEBYTECODE

stamp := .build/stamp
python := .build/venv/bin/python
checker := .build/venv-check/bin/
pip := $(python) -m pip --quiet --disable-pip-version-check

core_sources   := $(shell find core -name '*.[ch]' 2>/dev/null)
python_sources := $(shell find python -name '*.py' 2>/dev/null)
web_sources    := $(shell find web/src -type f 2>/dev/null) $(wildcard web/build.mjs web/bundle.mjs web/worker.mjs web/worker-parts.json web/modules.mjs web/declarations/build.mjs web/tsconfig*.json web/demo/*.ts web/demo/rooms/*.ts web/demo/rooms/*.css web/demo/rooms/*.html web/demo/rooms/samples/* web/demo/*.css web/demo/*.html web/demo/pages.mjs web/demo/*.webmanifest web/demo/icon*)
demo_model     := $(shell find web/demo/model web/demo/rooms/models -type f 2>/dev/null)
core_tests     := $(wildcard tests/core/*.c tests/core/common/*.[ch])

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(stamp)/web $(stamp)/wasm $(stamp)/wheel-pure $(stamp)/demo-model $(if $(filter real,$(MODELS)),$(stamp)/real) ## build everything a page needs, serve the demo on http://localhost:8017 (MODELS=real: with real models, about 300 MB)
	@if [ -x .build/venv-federated/bin/flwr ]; then $(hub) > .build/hub.log 2>&1 & trap "kill $$! 2> /dev/null" EXIT INT TERM; fi; \
	  node web/demo/serve.mjs --port $(PORT)

# The room "Teach it together" trains in rounds. The adapters are those of the demo's package.
hub = PYTHONPATH=python .build/venv-federated/bin/python -m edgewise.cli federate serve web/demo/model --again \
  --folder .build/hub --port $(HUB) --min 3 --rounds 8 --steps 8 --codec int4 $(demo_adapter)
hub: $(stamp)/venv-federated $(stamp)/native ## serve the rounds of the demo's room "Teach it together" on ws://127.0.0.1:8765 (make demo does so if this ran once)
	@$(hub)

test: $(stamp)/venv-test $(stamp)/native $(stamp)/sanitize $(stamp)/threads $(stamp)/web $(stamp)/wasm $(stamp)/wheel-pure $(stamp)/demo-model $(stamp)/browser $(stamp)/browsers $(stamp)/bundlers $(stamp)/web-ext $(stamp)/gpu $(stamp)/venv-federated $(stamp)/venv-serve $(stamp)/venv-release ## run the tests (TESTS=tests/ops: only those; JOBS=1: number of processes)
	npm --prefix web run --silent check
	$(python) -m pytest $(TESTS) $(only) -q -n $(JOBS) --dist loadgroup --no-loadscope-reorder

# Folders of tests that need no browser, and the extra that they are of, if they are of one.
QUICK ?= tests/core tests/ops tests/passes tests/session tests/generation tests/pipelines tests/processors tests/seq2seq tests/training tests/structure tests/tools
EXTRA ?=
quick: $(stamp)/venv-test $(stamp)/native $(stamp)/node $(if $(EXTRA),$(stamp)/venv-$(EXTRA),$(stamp)/sanitize $(stamp)/wasm) ## run the tests that need no browser, minutes (QUICK=tests/serve EXTRA=serve: those of an extra)
	npm --prefix web run --silent test
	$(python) -m pytest $(QUICK) -q -n $(JOBS) --dist loadgroup --no-loadscope-reorder

test-all: export EDGEWISE_TESTS = all
test-all: test ## run the tests, those marked slow included: before a release

test-slow: export EDGEWISE_TESTS = all
test-slow: only = -m slow
test-slow: test ## run the tests marked slow alone

frameworks: $(stamp)/venv-test $(stamp)/native $(stamp)/demo-model $(stamp)/browser $(stamp)/frameworks ## build a page with each web framework and run it, about 3 minutes
	$(python) -m pytest tests/frameworks/frameworks.py -q

check: $(stamp)/venv-check $(stamp)/node $(stamp)/logic $(stamp)/shaders ## check format, lint, types and structure: under a minute once its tools are there, without torch, a browser or a compiler
	$(checker)ruff format --check --quiet .
	$(checker)ruff check --quiet .
	git ls-files '*.c' '*.h' ':!core/gen' | xargs $(checker)clang-format --dry-run --Werror
	web/node_modules/.bin/biome ci --error-on-warnings .
	web/node_modules/.bin/tsc --noEmit --project web/tsconfig.json
	web/node_modules/.bin/tsc --noEmit --project web/tsconfig.test.json
	$(checker)mypy
	cd web && node test/run.mjs structure > /dev/null
	$(checker)python -m pytest -q -p no:cacheprovider --noconftest tests/structure

format: $(stamp)/venv-check $(stamp)/node ## format every file
	$(checker)ruff check --quiet --fix --select I . || true
	$(checker)ruff format --quiet .
	git ls-files '*.c' '*.h' ':!core/gen' | xargs $(checker)clang-format -i
	web/node_modules/.bin/biome format --write .

bench: $(stamp)/venv-bench $(stamp)/native $(stamp)/web $(stamp)/wasm $(stamp)/wheel-pure $(stamp)/demo-model $(stamp)/browser ## measure speed beside other engines, about 20 minutes (CASE="decode ops": only these cases)
	$(python) -m tests.bench $(CASE)

peers: $(stamp)/venv-test ## install the libraries that tests/browser/peers compares pages with: .build/bench/node
	$(python) -c 'from tests.bench.browser import peers; peers()'

soak: $(stamp)/venv-test $(stamp)/web $(stamp)/wasm $(stamp)/wheel-pure $(stamp)/demo-model $(stamp)/browser ## load models in RUNS (200) new browser profiles while all cores are busy; check that each visit ends
	$(python) -m tests.soak.soak --runs $(RUNS)

goals: $(stamp)/venv-test $(stamp)/native $(stamp)/venv-federated ## measure what federated rounds must hold at scale, minutes (GOALS="idle kills": only these)
	$(python) tests/federated/goals.py $(GOALS)

# Flower first: its own demands, not our pins, decide about the other packages.
newest: $(stamp)/venv-test $(stamp)/native ## run the tests of federated rounds with the newest Flower: for a weekly job
	$(PYTHON) -m venv --clear .build/venv-newest
	.build/venv-newest/bin/python -m pip --quiet --disable-pip-version-check install flwr
	sed -n 's/==.*//p' tests/federated/requirements.txt | xargs .build/venv-newest/bin/python -m pip --quiet --disable-pip-version-check install
	.build/venv-newest/bin/python -m pip --disable-pip-version-check freeze | grep '^flwr=='
	EDGEWISE_FEDERATED=venv-newest $(python) -m pytest tests/federated -q

fuzz: $(stamp)/sanitize $(stamp)/venv-test $(stamp)/native $(stamp)/wasm $(stamp)/node ## long runs under sanitizers with mutated plans (FUZZ=runs), models (FUZZ_ONNX=runs), packages, adapters and checkpoints (FUZZ_FILES=runs); random graphs beside onnxruntime (FUZZ_GRAPHS=graphs)
	PYTHONPATH=python $(python) tests/core/make_seeds.py .build/seeds
	@for program in .build/sanitize/fuzz*; do echo "$$program $(FUZZ)"; "$$program" $(FUZZ) || exit 1; done
	$(python) tests/hostile/fuzz_onnx.py --runs $(FUZZ_ONNX)
	$(python) tests/hostile/fuzz_files.py --runs $(FUZZ_FILES)
	$(python) tests/fuzz/fuzz_graphs.py --runs $(FUZZ_GRAPHS)
	$(python) tests/fuzz/fuzz_graphs.py --runs $$(($(FUZZ_GRAPHS) / 4)) --engine wasm

gen: $(stamp)/logic ## write the generated files: core/gen, web/src/gen
	$(PYTHON) core/generate

operators: $(stamp)/venv-test $(stamp)/native ## write the table of operators: tests/onnx_suite/OPERATORS.md
	PYTHONPATH=tests $(python) -m onnx_suite.operators

models: ## write the table of families of models that tests run: docs/reference/models.md
	$(PYTHON) tests/families.py

docs: $(stamp)/venv-docs $(stamp)/node-docs ## build the documentation site and check its links: .build/docs/index.html (EDGEWISE_REPOSITORY=address: with a link to it)
	npm --prefix web/typedoc run --silent build
	NO_MKDOCS_2_WARNING=1 .build/venv-docs/bin/mkdocs build --quiet
	$(PYTHON) tests/docs/links.py .build/docs

notebooks: $(stamp)/notebooks ## build a JupyterLite site with examples/notebooks: .build/notebooks/site/
	@echo "serve it: python3 -m http.server --directory .build/notebooks/site"

jupyterlite: $(stamp)/notebooks $(stamp)/venv-test $(stamp)/browser ## run the notebooks of that site in Chromium: about three minutes
	EDGEWISE_NOTEBOOKS=1 $(python) -m pytest tests/notebook/test_jupyterlite.py -q

wasm: $(stamp)/wasm ## build the engine for the web: web/dist/engine/*.wasm
native: $(stamp)/native ## build the engine for CPython: python/edgewise/host/engine/libedgewise*.so
sanitize: $(stamp)/sanitize ## build the engine and the programs of tests/core with sanitizers: .build/sanitize/
threads: $(stamp)/threads ## build the engine and tests/core/threads.c with the thread sanitizer: .build/threads/
web: $(stamp)/web $(stamp)/wasm $(stamp)/wheel-pure $(stamp)/lock $(stamp)/demo-model $(stamp)/pack ## build everything that a page loads: web/dist/
extension: $(stamp)/web $(stamp)/wasm $(stamp)/demo-model ## build the example extension: .build/extension/chrome and .build/extension/firefox
	@node examples/extension/build.mjs
wheel: $(stamp)/wheel-pure $(stamp)/lock $(stamp)/wheel ## build the wheels for Pyodide (with web/dist/pyodide-lock.json) and for this machine's CPython: dist/*.whl

wheels: $(stamp)/wheels ## build the sdist and, with zig, the wheels for Linux, macOS and Windows; check them: dist/wheels/
	.build/venv-wheels/bin/python -m pytest tests/wheels -q -p no:cacheprovider --noconftest

WHEELS ?= yes
release: $(stamp)/pack $(stamp)/venv-wheels $(if $(filter yes,$(WHEELS)),$(stamp)/wheels) ## gather what is published, with hashes and an SBOM, and check it: dist/release/ (WHEELS=no: of Python the sdist alone)
	.build/venv-wheels/bin/python python/wheels/release.py $(if $(filter yes,$(WHEELS)),,--sdist-only)
	.build/venv-wheels/bin/python -m pytest tests/wheels/test_release.py -q -p no:cacheprovider --noconftest

clean: ## remove build results, but not tools (rm -rf .build web/node_modules removes those)
	rm -rf dist web/dist web/LICENSE web/THIRD-PARTY-LICENSES.txt web/compiler/dist web/compiler/LICENSE web/compiler/THIRD-PARTY-LICENSES.txt docs/api/typescript .build/docs .build/wasm .build/native .build/sanitize .build/threads $(addprefix $(stamp)/,wasm native sanitize threads shaders web wheel wheel-pure text-library demo-model)
	rm -f python/edgewise/host/engine/*.so python/edgewise/compiler/gpu/gen/shaders.py web/src/gen/shaders*.ts

# Tools

$(stamp):
	@mkdir -p $@

$(stamp)/system: .ci/need.sh | $(stamp)
	@.ci/need.sh cc:gcc cmake:cmake node:nodejs npm:npm
	@touch $@

$(stamp)/browser: .ci/need.sh | $(stamp)/system
	@.ci/need.sh /usr/bin/chromium:chromium /usr/share/fonts/truetype/dejavu:fonts-dejavu-core
	@touch $@

# Optional: without these browsers tests/browsers runs in Chromium only and reports it.
$(stamp)/browsers: .ci/need.sh | $(stamp)/system
	@.ci/need.sh /usr/bin/firefox-esr:firefox-esr /usr/bin/WebKitWebDriver:webkit2gtk-driver Xvfb:xvfb || echo "Firefox and WebKitGTK will not be tested"
	@touch $@

# Optional: a GPU in software (Mesa's lavapipe) and two implementations of WebGPU, in .build/gpu.
# Without them tests/gpu uses what the machine has, or skips what needs a GPU and reports it.
$(stamp)/gpu: tests/gpu/setup.sh pyproject.toml | $(stamp)/venv
	@tests/gpu/setup.sh || echo "tests/gpu will be skipped where it needs a GPU"
	@touch $@

.build/bin/emcc: wasm/toolchain.sh .ci/need.sh | $(stamp)/system
	@wasm/toolchain.sh

$(stamp)/venv: .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version)'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv
	@echo "$(CURDIR)/python" > "$$($(python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/edgewise-checkout.pth"
	$(pip) install scikit-build-core==1.1.2
	@touch $@

$(stamp)/venv-test: pyproject.toml $(stamp)/venv
	@$(python) -c 'import tomllib; x = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]; \
	  print(*[r for r in x["test"] + x["train"] if isinstance(r, str)], sep="\n")' > .build/requirements.txt
	@echo "installing what the tests compare with (about 1.5 GB, minutes the first time)"
	$(pip) install -r .build/requirements.txt
	@touch $@

$(stamp)/venv-check: pyproject.toml | $(stamp)/system
	@$(PYTHON) -m venv .build/venv-check
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["check"], sep="\n")' > .build/requirements-check.txt
	@.build/venv-check/bin/pip --quiet --disable-pip-version-check install -r .build/requirements-check.txt
	@touch $@

$(stamp)/venv-bench: pyproject.toml | $(stamp)/venv-test
	@$(python) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["bench"], sep="\n")' > .build/requirements-bench.txt
	$(pip) install -r .build/requirements-bench.txt
	@touch $@

$(stamp)/venv-wheels: python/wheels/requirements.txt .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-wheels
	.build/venv-wheels/bin/python -m pip --quiet --disable-pip-version-check install -r python/wheels/requirements.txt
	@touch $@

# Optional: Flower and websockets for tests/federated. Without them these tests are skipped.
$(stamp)/venv-federated: $(wildcard tests/federated/requirements*.txt) .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-federated
	@for name in requirements requirements-flower; do \
	  .build/venv-federated/bin/python -m pip --quiet --disable-pip-version-check install -r tests/federated/$$name.txt \
	  || echo "tests/federated/$$name.txt cannot be installed: tests that need it will be skipped"; done
	@touch $@

# Optional: the HTTP libraries and OpenAI's client for tests/serve. Without them these are skipped.
$(stamp)/venv-serve: tests/serve/requirements.txt .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-serve
	@.build/venv-serve/bin/python -m pip --quiet --disable-pip-version-check install -r $< \
	  || echo "$< cannot be installed: tests that need it will be skipped"
	@touch $@

# Optional: python-tuf for tests/hub/release. Without it these tests are skipped.
$(stamp)/venv-release: tests/hub/release/requirements.txt .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-release
	@.build/venv-release/bin/python -m pip --quiet --disable-pip-version-check install -r $< \
	  || echo "$< cannot be installed: tests that need it will be skipped"
	@touch $@

$(stamp)/venv-docs: docs/requirements.txt .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-docs
	.build/venv-docs/bin/python -m pip --quiet --disable-pip-version-check install -r docs/requirements.txt
	@touch $@

$(stamp)/node-docs: web/typedoc/package.json web/typedoc/package-lock.json | $(stamp)/system
	npm --prefix web/typedoc ci --silent --no-fund --no-audit
	@touch $@

$(stamp)/node: web/package.json web/package-lock.json | $(stamp)/system
	npm --prefix web ci --silent --no-fund --no-audit
	@touch $@

$(stamp)/node-declarations: web/declarations/package.json web/declarations/package-lock.json | $(stamp)/system
	npm --prefix web/declarations ci --silent --no-fund --no-audit
	@touch $@

# Products

$(stamp)/wasm: $(core_sources) wasm/Makefile wasm/heap.c wasm/check.mjs wasm/module.mjs $(wildcard python/edgewise/compiler/shake/*.py) .build/bin/emcc
	@$(MAKE) --silent --no-print-directory -C wasm PYTHON="$(PYTHON)"
	@touch $@

$(stamp)/native: $(core_sources) core/CMakeLists.txt | $(stamp)/system $(stamp)/shaders
	@cmake -S core -B .build/native -G "Unix Makefiles" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON --log-level=WARNING
	@$(MAKE) --silent --no-print-directory -C .build/native > .build/native/log
	@cmake --install .build/native --prefix python > .build/native/log
	@touch $@

$(stamp)/sanitize: $(core_sources) $(core_tests) core/CMakeLists.txt | $(stamp)/system
	@cmake -S core -B .build/sanitize -G "Unix Makefiles" -DEDGEWISE_SANITIZE=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON --log-level=WARNING
	@$(MAKE) --silent --no-print-directory -C .build/sanitize > .build/sanitize/log
	@touch $@

$(stamp)/threads: $(core_sources) $(core_tests) core/CMakeLists.txt | $(stamp)/system
	@cmake -S core -B .build/threads -G "Unix Makefiles" -DEDGEWISE_SANITIZE_THREADS=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON --log-level=WARNING
	@$(MAKE) --silent --no-print-directory -C .build/threads > .build/threads/log
	@touch $@

# The library with the engine in one file, for npm and script tags, and the package
# edgewise-compiler. The one file has the hashes of the wheel and its snapshot.
$(stamp)/pack: web/pack.mjs web/licenses.mjs web/compiler.mjs web/compiler/package.json web/compiler/README.md LICENSE $(stamp)/web $(stamp)/wasm $(stamp)/wheel-pure
	npm --prefix web run --silent pack
	@touch $@

# The linter of extensions, for the tests.
$(stamp)/web-ext: tests/examples/package.json | $(stamp)/system
	@mkdir -p .build/extension-tools
	@cp $< .build/extension-tools/ && npm --prefix .build/extension-tools install --silent --no-fund --no-audit --ignore-scripts
	@touch $@

# The bundlers and runtimes under test, and the npm packages beside them.
$(stamp)/node-bundlers: tests/bundlers/package.json tests/bundlers/package-lock.json | $(stamp)/system
	@mkdir -p .build/bundlers && cp $^ .build/bundlers/
	npm --prefix .build/bundlers ci --silent --no-fund --no-audit --ignore-scripts
	@touch $@

npm_packages := edgewise edgewise-compiler
$(stamp)/bundlers: $(stamp)/node-bundlers $(stamp)/pack
	@rm -rf $(npm_packages:%=.build/bundlers/node_modules/%) .build/bundlers/*.tgz
	@cd web && npm pack --silent --pack-destination ../.build/bundlers . ./compiler > ../.build/bundlers/log
	@cd .build/bundlers && for name in $(npm_packages); do mkdir -p node_modules/$$name && \
	  tar xzf $$name-[0-9]*.tgz -C node_modules/$$name --strip-components=1 || exit 1; done
	@touch $@

# The smallest app of each framework. edgewise is the npm package, as above.
frameworks := $(patsubst tests/frameworks/%/package.json,%,$(wildcard tests/frameworks/*/package.json))
$(stamp)/node-frameworks: $(wildcard tests/frameworks/*/package.json tests/frameworks/*/package-lock.json) | $(stamp)/system
	@for name in $(frameworks); do \
	  mkdir -p .build/frameworks/$$name && cp tests/frameworks/$$name/package*.json .build/frameworks/$$name/ && \
	  npm --prefix .build/frameworks/$$name ci --silent --no-fund --no-audit --ignore-scripts || exit 1; done
	@touch $@

$(stamp)/frameworks: $(stamp)/node-frameworks $(stamp)/bundlers
	@for name in $(frameworks); do for package in $(npm_packages); do \
	  rm -rf .build/frameworks/$$name/node_modules/$$package && \
	  cp -r .build/bundlers/node_modules/$$package .build/frameworks/$$name/node_modules/ || exit 1; done; done
	@touch $@

# The shaders of core/kernels and core/sampling, as modules of Python and TypeScript.
$(stamp)/shaders: $(shell find core -name '*.wgsl') $(wildcard core/generate/*.py) $(python_sources) | $(stamp)/system
	@$(PYTHON) core/generate --built
	@touch $@

# Logic of both hosts: python/edgewise/logic as TypeScript. mypy finds the types that this needs.
$(stamp)/logic: $(wildcard core/generate/logic/*.py) $(shell find python/edgewise/logic -name '*.py' 2>/dev/null) python/edgewise/errors.py | $(stamp)/venv-check
	$(checker)python core/generate/logic
	@touch $@

# The bundle contains a hash of the compiler's sources, so that pages discard plans of other versions.
$(stamp)/web: $(stamp)/logic $(stamp)/shaders $(web_sources) $(python_sources) $(demo_model) $(stamp)/node $(stamp)/node-declarations
	npm --prefix web run --silent build
	npm --prefix web/declarations run --silent build
	@touch $@

# The demo's model, compiled ahead of time, so that its page needs no Python. Such a small model needs
# a higher learning rate and rank than usual.
$(stamp)/demo-model: $(demo_model) $(python_sources) $(stamp)/venv $(stamp)/native | $(stamp)/web
	@mkdir -p web/dist/demo
	$(python) -m edgewise.cli build web/demo/model --train lora $(demo_adapter) --batch-size 1 -o web/dist/demo/model.edge
	$(python) -m edgewise.cli build web/demo/model --target webgpu --train lora $(demo_adapter) --batch-size 1 -o web/dist/demo/model-gpu.edge
	@for room in see morse voice draw learner speak; do $(python) web/demo/rooms/models/$$room.py web/dist/demo/$$room.edge || exit 1; done
	@touch $@

# Real models for the rooms, from pinned packages. Their conversion needs torch.
$(stamp)/venv-real: web/demo/real/requirements.txt .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-real
	.build/venv-real/bin/python -m pip --quiet --disable-pip-version-check install -r $<
	@touch $@

$(stamp)/real: web/demo/real/make.py $(stamp)/venv-real $(stamp)/native | $(stamp)/web
	.build/venv-real/bin/python web/demo/real/make.py web/dist/demo/real
	@touch $@

# The tokenizers and chat templates of pages, for the wheel.
$(stamp)/text-library: $(stamp)/logic web/text-library.mjs web/bundle.mjs web/licenses.mjs web/src/worker/entry/text-library.ts $(wildcard web/src/worker/text/*.ts web/src/shared/*.ts) | $(stamp)/node
	@node web/text-library.mjs
	@touch $@

# A page loads the wheel as web/dist/edgewise-VERSION-py3-none-any.whl. It contains the engine's wasm
# and bytecode for Pyodide's Python.
$(stamp)/wheel-pure: $(python_sources) pyproject.toml LICENSE README.md wasm/pyodide/bytecode.mjs wasm/pyodide/snapshot.mjs wasm/pyodide/warm.py web/package-lock.json $(stamp)/wasm $(stamp)/text-library $(stamp)/venv | $(stamp)/web
	EDGEWISE_PURE=1 $(pip) wheel --no-deps --no-build-isolation --wheel-dir dist .
	@for wheel in dist/edgewise-*-py3-none-any.whl; do node wasm/pyodide/bytecode.mjs "$$wheel" || exit 1; done
	@mkdir -p web/dist && cp dist/edgewise-*-py3-none-any.whl web/dist/
	@rm -f web/dist/pyodide-lock.json # it has the digest of the wheel before
	@for wheel in web/dist/edgewise-*.whl; do node wasm/pyodide/snapshot.mjs "$$wheel" "$${wheel%.whl}.snapshot" || exit 1; done
	@touch $@

# JupyterLite with Pyodide and the wheels of its kernel: about 40 MB are downloaded the first time.
$(stamp)/venv-notebooks: examples/notebooks/requirements.txt .ci/need.sh | $(stamp)/system
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || .ci/need.sh :python3-venv
	$(PYTHON) -m venv .build/venv-notebooks
	.build/venv-notebooks/bin/python -m pip --quiet --disable-pip-version-check install -r examples/notebooks/requirements.txt
	@touch $@

$(stamp)/notebooks: $(wildcard examples/notebooks/*) $(demo_model) $(stamp)/venv-notebooks $(stamp)/wheel-pure
	.build/venv-notebooks/bin/python examples/notebooks/build.py "$$(ls -t dist/edgewise-*-py3-none-any.whl | head -1)" .build/notebooks/site
	@touch $@

# For loadPyodide({lockFileURL}): loadPackage("edgewise") finds the wheel in the lock file's folder.
$(stamp)/lock: wasm/pyodide/make_lock.py $(stamp)/wheel-pure
	$(pip) install pyodide-lock==0.1.0a4 pkginfo==2.0 "pydantic<2"
	@$(python) wasm/pyodide/make_lock.py "$$(ls -t dist/edgewise-*-py3-none-any.whl | head -1)" web/dist/pyodide-lock.json
	@touch $@

$(stamp)/wheel: $(core_sources) $(python_sources) pyproject.toml core/CMakeLists.txt LICENSE README.md $(stamp)/venv | $(stamp)/wheel-pure
	$(pip) wheel --no-deps --no-build-isolation --wheel-dir dist .
	@touch $@

# Compiling for all platforms takes minutes, so `make test` does not do it.
$(stamp)/wheels: $(core_sources) $(python_sources) pyproject.toml core/CMakeLists.txt LICENSE README.md $(wildcard python/wheels/*) $(stamp)/native $(stamp)/venv-wheels
	.build/venv-wheels/bin/python python/wheels/build.py
	@touch $@
