# gorovod's commands; `make help` lists them.
#
# PYTHON  a Python with torch, numpy, pytest and cloudpickle. Without it the
#         targets that need one find or install it (scripts/prepare.sh).
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO       ?= go
LDFLAGS  ?= -s -w
# Where the command starts (gorovod_entry), on the architectures that it is written for.
ENTRY    := $(if $(wildcard cmd/gorovod/start_linux_$(shell $(GO) env GOARCH).s),-E gorovod_entry)
FUZZTIME ?= 20s
SOAKTIME ?= 600
NP       ?= 4
BENCHNP  ?= 2
OUT      ?= build
# For the wheel: links against the C library of 2012.
OLD_CC   := $(CURDIR)/scripts/old_cc.sh
MACHINE  := $(shell uname -m)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# Where goroutines meet: slow enough under the race detector to leave the rest out.
RACE := ./internal/base/auth/... ./internal/core/transport/... ./internal/observe/timeline/... ./internal/joining/liveness/... ./internal/joining/rendezvous/... ./internal/joining/world/... ./internal/joining/connect/... \
	./internal/core/engine/... ./internal/joining/process/... ./internal/launch/... ./internal/elastic/... ./internal/observe/flight/... \
	./internal/base/guard/... ./internal/base/reach/... ./internal/joining/bootstrap/... ./hvd/...

# Read when a recipe runs, after its target's `prepare`.
python = $${PYTHON:-$$(cat build/python)}
# Set here so that what make starts uses the checkout's package.
export PYTHONPATH := $(CURDIR)/python$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 18

.PHONY: prepare
prepare:
	@scripts/prepare.sh toolchain python

.PHONY: tools
tools:
	@scripts/prepare.sh toolchain tools

# LINK compiles and links C where it is not CC alone; GO_LINK says so to Go. What CC compiles stays in Go's cache, whoever links.
LINK     ?= $(CC)
GO_LINK  ?=
.PHONY: build
build: ## build/gorovod, build/horovodrun, build/libgorovod.so, build/libgorovod_tensorflow.so, build/libgorovod_jax.so, build/libgorovod_python.so
	@scripts/prepare.sh toolchain
	@echo "compiling gorovod and its libraries into $(OUT): minutes the first time, then seconds"
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='$(LDFLAGS) $(ENTRY)' -o $(OUT)/gorovod ./cmd/gorovod
	ln -f $(OUT)/gorovod $(OUT)/horovodrun
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags='$(LDFLAGS) $(GO_LINK) -extldflags=-Wl,--version-script=$(CURDIR)/cmd/libgorovod/exports.map' -buildmode=c-shared -o $(OUT)/libgorovod.so ./cmd/libgorovod
	for framework in tensorflow jax python; do \
	  $(LINK) -std=gnu2x -O2 -Wall -Wextra -Wno-missing-field-initializers -Werror -fPIC -fvisibility=hidden -shared -Iinclude -o $(OUT)/libgorovod_$$framework.so shim/$$framework/*.c -ldl -lpthread; \
	done

.PHONY: wheel
wheel: ## dist/gorovod-….whl, one for every Python since 3.9 on any Linux with glibc 2.17 (2012) or later
	@scripts/prepare.sh toolchain wheel
	$(MAKE) --no-print-directory wheel-files
	rm -f dist/*.whl
	@echo "packing the wheel"
	GOROVOD_WHEEL_BUILD=build/wheel build/wheel-tools/bin/python -m hatchling build -t wheel -d dist

.PHONY: wheel-check
wheel-check: prepare wheel ## the wheel's needs and metadata, and its tests and demo in a new environment; 2 minutes
	scripts/check_wheel.sh dist/*.whl $(python)

.PHONY: install
install: ## pip install this checkout into the active environment, or the one of PYTHON
	@scripts/prepare.sh toolchain
	@scripts/install.sh

.PHONY: wheel-compat
wheel-compat: ## dist/compat/horovod-0.28.1+gorovod-….whl, metadata alone: lets packages that require horovod be installed beside gorovod
	@scripts/prepare.sh wheel
	cd compat && $(CURDIR)/build/wheel-tools/bin/python -m hatchling build -t wheel -d $(CURDIR)/dist/compat

# What goes into a wheel for MACHINE, in OUT. GOARCH says the machine to Go. -buildid= leaves out what depends on the
# checkout's folder, so that a commit gives the same files anywhere. Another machine's C is also compiled by OLD_CC.
.PHONY: wheel-files
wheel-files: OUT = build/wheel
wheel-files: export MACHINE := $(MACHINE)
wheel-files:
	$(MAKE) --no-print-directory build OUT=$(OUT) $(if $(filter-out $(shell uname -m),$(MACHINE)),CC='$(OLD_CC)') LINK='$(OLD_CC)' GO_LINK='-extld=$(OLD_CC)' \
	  LDFLAGS='$(LDFLAGS) -buildid='
	@$(MAKE) --no-print-directory sbom OUT=$(OUT)

# The same for pip install . on this machine, which needs no other compiler: it links against this machine's C library.
.PHONY: pip-files
pip-files: OUT = build/pip
pip-files:
	$(MAKE) --no-print-directory build OUT=$(OUT)
	@$(MAKE) --no-print-directory sbom OUT=$(OUT)

.PHONY: sbom
sbom:
	@echo "writing the bill of materials"
	GOARCH= $(GO) run ./internal/tools/notices/generate -sbom -o $(OUT)/gorovod.cdx.json $(OUT)/gorovod $(OUT)/libgorovod*.so

.PHONY: release
release: prepare ## the whole release, rehearsed: wheels for two machines, archives, licences, checked, in dist/release; publishes nothing
	@scripts/prepare.sh wheel release
	scripts/release.sh $(python)

.PHONY: demo
demo: prepare build ## train a small network on 4 ranks
	build/horovodrun -np $(NP) $(python) examples/pytorch_digits.py

.PHONY: check
check: check-quick build ## before each commit, 3 minutes: vet, gofmt, ruff, the quick Go tests, one case of each Python front end that is installed
	$(GO) test -short -p 4 ./... # many packages wait more than they compute
	scripts/smoke.sh

.PHONY: check-quick
check-quick: tools gofmt ## the half of make check that runs no test, in seconds: line lengths, vet, gofmt, ruff
	scripts/line_lengths.py
	$(GO) vet ./...
	build/tools/bin/ruff check .

.PHONY: hooks
hooks: ## let git run make check-quick before each commit, and check its subject
	git config core.hooksPath .githooks

.PHONY: gofmt
gofmt:
	@unformatted=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi

.PHONY: test
test: test-go test-k8s test-python test-tensorflow test-jax ## all tests

.PHONY: test-go
test-go: prepare build ## vet, the Go tests, and again with the race detector where goroutines meet
	$(GO) vet ./...
	GO='$(GO)' scripts/go_tests.py -p 4 -timeout 20m ./... # many packages wait more than they compute
	GO='$(GO)' scripts/go_tests.py -p 4 -timeout 20m -race $(RACE)

.PHONY: test-k8s
test-k8s: ## the manifests of gorovod k8s render against the schemas of clusters; a Go module of its own, test/k8s
	cd test/k8s && $(GO) vet ./... && GO='$(GO)' ../../scripts/go_tests.py ./...

.PHONY: test-python
test-python: prepare build ## the Python tests on 1 to 3 ranks, those of collectives on 4, fault tests, demos; some again without the extension
	$(python) scripts/python_tests.py --together
	GOROVOD_PURE_PYTHON=1 $(python) scripts/python_tests.py --ranks 2 --together --logs build/test-logs-pure test/python/test_{basics,torch_distributed,torch_memory,torch_ops,torch_optimizer}.py

# The engine's library is the ordinary one. Python itself leaks at its end, and Go handles faults.
.PHONY: test-native-asan
test-native-asan: prepare build ## the tests of the extension for Python, built with AddressSanitizer and UBSan; a minute
	mkdir -p build/asan
	ln -sf ../libgorovod.so build/asan/libgorovod.so
	$(CC) -std=gnu2x -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fPIC -fvisibility=hidden -shared -Iinclude -o build/asan/libgorovod_python.so shim/python/*.c
	GOROVOD_LIBRARY=$(CURDIR)/build/asan/libgorovod.so LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allow_user_segv_handler=1:use_sigaltstack=0:quarantine_size_mb=8 \
	  $(python) scripts/python_tests.py --ranks 1,2 --logs build/test-logs-asan test/python/test_{native,native_arrays,torch_distributed_short,torch_distributed_short_ends}.py

PROGRAMS ?= 10000
SEED     ?= 1
.PHONY: test-gpu-fake
test-gpu-fake: build ## PROGRAMS=10000 random programs from SEED=1 on the stand-in for CUDA's driver and NCCL, with each wait dropped in turn; make test-go has 400
	$(GO) test -count=1 -timeout 60m -v -run 'TestRandomPrograms|TestWrongResult|TestDroppedWaits|TestDeath|TestExit|TestFaults' ./test/gpu -programs $(PROGRAMS) -seed $(SEED) -every

.PHONY: test-tables
test-tables: ## PROGRAMS=10000 random programs on sparse tables against one process, and a third as many that save and load; make test-go has 80
	$(GO) test -count=1 -timeout 120m -v -run 'Test(Sparse|Saved)TablesAgainstOneProcess' ./internal/core/engine -sparse-programs $(PROGRAMS)

.PHONY: test-long
test-long: prepare build ## what make test leaves out: long trainings, all of PyTorch's on 4 ranks, trainings on further numbers of ranks, Keras and training with TensorFlow on 1 rank, operations with 2.15
	$(python) scripts/python_tests.py --long
	$(python) scripts/python_tests.py --ranks 4 --together --logs build/test-logs-4
	@scripts/prepare.sh tensorflow
	python=$$(head -n 1 build/tensorflows); $$python scripts/python_tests.py --ranks 1 --together --logs $(tensorflow-logs)-1 test/tensorflow/test_{keras,tensorflow_gr,tensorflow_ta,tensorflow_tr}*.py; \
	$$python scripts/python_tests.py --long --logs $(tensorflow-logs)-long test/tensorflow/test_tensorflow_jobs.py
	for python in $$(tail -n +2 build/tensorflows); do \
	  $(say-tensorflow); \
	  $$python scripts/python_tests.py --ranks 2 --together --logs $(tensorflow-logs) test/tensorflow/test_tensorflow_{docstrings,gradients,jobs,ops}.py; \
	done

# The older TensorFlow differs in its Keras (2). Of the others of its tests one case stays here; test-long has them all.
.PHONY: test-tensorflow
test-tensorflow: build ## the TensorFlow tests on 2 ranks, Keras and training with 2.15, too, and operations on 1 rank without the extension (TENSORFLOWS=…)
	@scripts/prepare.sh tensorflow
	python=$$(head -n 1 build/tensorflows); $(say-tensorflow); \
	$$python scripts/python_tests.py --ranks 2 --together --logs $(tensorflow-logs) test/tensorflow/test_*.py; \
	GOROVOD_PURE_PYTHON=1 $$python scripts/python_tests.py --ranks 1 --logs $(tensorflow-logs)-1 test/tensorflow/test_tensorflow_ops.py
	for python in $$(tail -n +2 build/tensorflows); do \
	  $(say-tensorflow); \
	  $$python scripts/python_tests.py --ranks 2 --together --logs $(tensorflow-logs) test/tensorflow/test_keras*.py test/tensorflow/test_tensorflow_training.py; \
	  $$python scripts/python_tests.py --smoke --logs $(tensorflow-logs)-smoke test/tensorflow/test_tensorflow_{ops,tables,table_saves}.py; \
	done

tensorflow-logs = build/test-logs-$$(basename $${python%/bin/python})
say-tensorflow = echo "-- $$($$python -c 'import importlib.metadata as m; print("TensorFlow", m.version("tensorflow-cpu"), "Keras", m.version("keras"))')"

.PHONY: test-jax
test-jax: build ## the JAX tests on 2 ranks, and on 1 without the extension
	@scripts/prepare.sh jax
	[ ! -x build/jax/bin/python ] || build/jax/bin/python scripts/python_tests.py --ranks 2 --together --logs build/test-logs-jax test/jax/test_*.py
	[ ! -x build/jax/bin/python ] || GOROVOD_PURE_PYTHON=1 build/jax/bin/python scripts/python_tests.py --ranks 1 --together --logs build/test-logs-jax-pure test/jax/test_{jax,jax_programs,keras_on_jax}.py

# make test runs parts of this. Python 3.9 and interpreters without a GIL always do without the extension.
.PHONY: test-pure-python
test-pure-python: prepare build ## all Python tests of PyTorch, TensorFlow and JAX without the extension
	GOROVOD_PURE_PYTHON=1 $(python) scripts/python_tests.py --together --logs build/test-logs-pure
	GOROVOD_PURE_PYTHON=1 $(MAKE) --no-print-directory test-tensorflow test-jax

.PHONY: doctest
doctest: prepare build ## the examples in the docstrings of PyTorch, TensorFlow, Keras and JAX; parts of the three targets above
	@scripts/prepare.sh tensorflow jax
	$(python) scripts/python_tests.py --logs build/test-logs-doctest test/python/test_docstrings.py
	for python in $$(cat build/tensorflows); do \
	  $$python scripts/python_tests.py --logs build/test-logs-doctest test/tensorflow/test_tensorflow_docstrings.py; \
	done
	[ ! -x build/jax/bin/python ] || build/jax/bin/python scripts/python_tests.py --logs build/test-logs-doctest test/jax/test_jax_docstrings.py

.PHONY: test-gpu
test-gpu: ## the tests on this machine's GPUs, and figures, into build/gpu.txt; PYTHON=… has pytest and PyTorch or JAX for CUDA; ends with an error where there is no GPU
	[ -f build/libgorovod.so ] || $(MAKE) --no-print-directory build
	$${PYTHON:-python3} scripts/test_gpu.py

.PHONY: test-nvidia
test-nvidia: prepare ## what the engine knows of CUDA and NCCL against NVIDIA's own headers and libraries; downloads 0.9 GB into build/nvidia, needs no GPU
	@scripts/prepare.sh nvidia
	$(GO) test -count=1 -v -run 'Headers|RealNCCL' ./internal/carriers/gpu ./internal/carriers/nccl

.PHONY: ray
ray: prepare build ## jobs on real Ray clusters of this machine; installs Ray 2.60 into build/ray
	@scripts/prepare.sh ray
	[ ! -x build/ray/bin/python ] || build/ray/bin/python scripts/python_tests.py --alone --logs build/test-logs-ray test/ray/test_*.py

.PHONY: ray-short
ray-short: prepare build ## the short form of make ray, 3 minutes: what is marked smoke
	@scripts/prepare.sh ray
	[ ! -x build/ray/bin/python ] || build/ray/bin/python scripts/python_tests.py --alone --smoke --logs build/test-logs-ray test/ray/test_*.py

# The estimators for Keras run again with the older TensorFlow, whose Keras is 2.
.PHONY: spark
spark: prepare build ## jobs on real Spark clusters of this machine; installs PySpark 4.3 into build/spark, and Java as root
	@scripts/prepare.sh spark tensorflow
	[ ! -x build/spark/bin/python ] || build/spark/bin/python scripts/python_tests.py --alone --logs build/test-logs-spark test/spark/test_*.py
	[ ! -x build/spark/bin/python ] || for python in $$(tail -n +2 build/tensorflows); do \
	  $(say-tensorflow); \
	  PYTHONPATH=$$($$python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') build/spark/bin/python scripts/python_tests.py --alone --logs build/test-logs-spark-keras2 test/spark/test_keras_estimator.py; \
	done

.PHONY: spark-lightning
spark-lightning: wheel ## the estimators for Lightning and PyTorch 2 on Spark, in the chroot of make test-torch2 (root only)
	scripts/spark_lightning.sh dist/*.whl

.PHONY: spark-short
spark-short: prepare build ## the short form of make spark, 3 minutes: what is marked smoke
	@scripts/prepare.sh spark
	[ ! -x build/spark/bin/python ] || build/spark/bin/python scripts/python_tests.py --alone --smoke --logs build/test-logs-spark test/spark/test_*.py

.PHONY: drills
drills: build ## jobs with a straggler of a random kind and size: is it named? And 100 healthy jobs. 40 minutes
	$(python) bench/drills $(DRILLS)

.PHONY: lint
lint: check-quick ## make check-quick, vet for arm64 and darwin, staticcheck, mypy, and GitHub's workflows by actionlint
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml
	build/tools/bin/mypy

.PHONY: docs
docs: ## the documentation as pages: build/docs/index.html; broken links are errors
	@scripts/prepare.sh docs
	@echo "making the pages: about a minute"
	build/docs-tools/bin/python -m sphinx -W --keep-going -q -b html docs build/docs

.PHONY: bench
bench: prepare build ## this machine's limits, this engine and its peers: build/bench.json, build/bench.svg
	build/gorovod bench -n $(BENCHNP) --python $(python) --json build/bench.json --plot build/bench.svg $(BENCHFLAGS)

# Without variables: the default cells. BENCHFLAGS='-gorovod FILE' measures another build.
.PHONY: bench-hosts
bench-hosts: prepare build ## hosts made of network namespaces: this engine by turns with gloo and Open MPI over TCP, 10 minutes (root; one cell: HOSTS=4 RANKS=1 RATE=1gbit DELAY=0; less: PEERS=go,gloo WORKS=4,64KiB ROUNDS=3; PAGE=docs/performance.md)
	$(GO) build -o build/bench-hosts ./bench/hosts
	build/bench-hosts -hosts '$(HOSTS)' -ranks '$(RANKS)' -rate '$(RATE)' -delay '$(DELAY)' $(if $(PEERS),-peers '$(PEERS)') $(if $(WORKS),-works '$(WORKS)') $(if $(ROUNDS),-rounds $(ROUNDS)) -python $(python) -json build/bench-hosts.json $(if $(or $(PLOT),$(if $(WORKS),,all)),-plot $(or $(PLOT),build/bench-hosts.svg)) $(if $(PAGE),-page $(PAGE)) $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s) each
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: faults
faults: ## every kind of fault in every phase of a job, five times each, into docs/reliability.md (10 minutes; root, for the cut link)
	FAULTS_PER_CELL=$(or $(FAULTS_PER_CELL),5) $(GO) test ./test/faults -v -count=1 -timeout 60m -parallel 4

.PHONY: soak
soak: prepare build ## an elastic job through faults at random for CHAOS (10m), then fault and property tests over and over for SOAKTIME (600) seconds
	scripts/soak.sh $(SOAKTIME) $(python)

ROWS ?= 100000000
.PHONY: tables
tables: build ## a sparse table of ROWS=100000000 rows of 16 numbers with Adagrad on 4 ranks, and its memory, at most 1.5 times what the rows need: 13 GB, a few minutes
	$(GO) build -o $(OUT)/tables ./bench/tables
	$(OUT)/horovodrun -np 4 $(OUT)/tables -rows $(ROWS)

.PHONY: matrix
matrix: wheel-check ## the wheel's tests under other Pythons and PyTorches, in chroots (root only), and under every TensorFlow since 2.12
	rm -f build/matrix/*.json
	status=0; scripts/matrix.sh dist/*.whl $(SYSTEMS) || status=$$?; $(python) scripts/compatibility.py $$(ls build/matrix/*.json 2>/dev/null); exit $$status
	scripts/tensorflow_matrix.sh dist/*.whl

.PHONY: ecosystem
ecosystem: wheel wheel-compat ## programs of other projects over the wheel (PROGRAMS_OF=…, names as in docs/ecosystem.md); downloads 6 GB into build/ecosystem
	@scripts/prepare.sh ecosystem
	scripts/ecosystem.sh dist/*.whl dist/compat/*.whl $(PROGRAMS_OF)

.PHONY: test-torch2
test-torch2: wheel-check ## make wheel-check, and the wheel's tests under PyTorch 2, in a chroot of Debian's trixie (root only)
	scripts/matrix.sh dist/*.whl trixie

.PHONY: image
image: wheel ## the image of deploy/Containerfile without root's rights or a registry of images, in build/image/gorovod.tar, and the demo in it (BASE=…, PACKAGES=…, NP=2)
	scripts/image.sh dist/*.whl

.PHONY: k8s-apiserver
k8s-apiserver: ## all manifests and the definitions of custom resources into a real kube-apiserver, which it builds; some ten minutes
	GO='$(GO)' scripts/k8s_apiserver.sh

.PHONY: schedulers
schedulers: prepare build ## jobs that srun, sbatch, mpirun and torchrun start, for real, and how they die, and the contract's cases over MPI: what is installed of these (Slurm: root only; PARTS=…)
	@scripts/prepare.sh mpi4py
	scripts/schedulers.sh $(python) $(PARTS)

.PHONY: mpi-matrix
mpi-matrix: build ## make schedulers, but for Slurm, with the Open MPI and the MPICH of other Debian releases, in chroots (root only; RELEASES=…, PARTS=…)
	scripts/mpi_matrix.sh $(RELEASES)

.PHONY: clean
clean: ## remove what was built
	rm -rf --one-file-system build dist
