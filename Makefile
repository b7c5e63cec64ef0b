# SPDX-License-Identifier: Apache-2.0
# mics - build. `make help` lists the targets and the settings.

BUILD  ?= build
# One spelling, so that recorded dependencies are found however the folder is spelled. It is relative
# if it can be, because make separates paths at blanks.
override BUILD := $(shell realpath -m -s --relative-base=. -- '$(BUILD)')
$(if $(word 2,$(BUILD)),$(error BUILD: '$(BUILD)': a path with blanks))
PREFIX ?= /usr/local
MARCH  ?= native
CFLAGS ?= -O2 -g
SAN    ?=
MPI    ?= auto
EXPAT  ?= auto
YAML   ?= auto
ONEDNN ?= auto
WERROR ?= 0
V      ?= 0
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(V),0)
Q := @
say = @printf '  %-5s %s\n' '$(1)' '$(patsubst $(BUILD)/%,%,$@)';
endif

VERSION := $(shell sed -n 's/^.define MICS_VERSION "\(.*\)"/\1/p' lib/base/version.h)

# Libraries. msgpack-c is called msgpack before its version 6.
have     = $(shell pkg-config --exists $(1) 2>/dev/null && echo yes)
PKGS    := jansson hwloc openblas libxxhash libpcre2-8 libutf8proc zlib libzstd $(if $(call have,msgpack-c),msgpack-c,msgpack)
HAVE_MPI := $(if $(filter 0,$(MPI)),0,$(if $(call have,ompi-c),1,$(if $(filter 1,$(MPI)),missing,0)))
ifneq ($(HAVE_MPI),0)
PKGS    += ompi-c
endif
# The PMIx that Open MPI opens is found at run time: only its headers are needed here.
HAVE_PMIX := $(if $(filter 0,$(HAVE_MPI)),0,$(if $(call have,pmix),1,0))
HAVE_EXPAT := $(if $(filter 0,$(EXPAT)),0,$(if $(call have,expat),1,$(if $(filter 1,$(EXPAT)),missing,0)))
ifneq ($(HAVE_EXPAT),0)
PKGS    += expat
endif
HAVE_YAML := $(if $(filter 0,$(YAML)),0,$(if $(call have,yaml-0.1),1,$(if $(filter 1,$(YAML)),missing,0)))
ifneq ($(HAVE_YAML),0)
PKGS    += yaml-0.1
endif
# oneDNN is opened at run time: only its headers are needed here, which pkg-config seldom knows.
# "auto" leaves out versions that onednn_api.h refuses.
compiles = $(shell $(CC) -fsyntax-only $(1) >/dev/null 2>&1 && echo yes)
HAVE_ONEDNN := $(if $(filter 0,$(ONEDNN)),0,$(if $(filter 1,$(ONEDNN)),$(if $(call compiles,-include dnnl.h -x c /dev/null),1,missing),$(if $(call compiles,-x c kernels/host/onednn_api.h),1,0)))
ONEDNN_SONAME := $(if $(filter 1,$(HAVE_ONEDNN)),$(shell objdump -p "$$($(CC) -print-file-name=libdnnl.so)" 2>/dev/null | sed -n 's/^ *SONAME *//p'))
MISSING := $(strip $(foreach p,$(PKGS),$(if $(call have,$(p)),,$(p))) $(if $(filter missing,$(HAVE_ONEDNN)),dnnl.h))
ifeq ($(MISSING),)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) $(if $(filter 1,$(HAVE_PMIX)),pmix))
# OpenBLAS is opened at run time, too (kernels/host/blas.h).
PKG_LIBS   := $(shell pkg-config --libs $(filter-out openblas,$(PKGS)))
endif
LEFT_OUT = $(if $(filter 0,$(HAVE_MPI)),"MPI ($(if $(filter 0,$(MPI)),as asked,ompi-c is not installed)): one process only") \
	$(if $(filter 1,$(HAVE_PMIX))$(filter 0,$(HAVE_MPI)),,"PMIx (not installed): ranks that srun starts on busy nodes may crash in Open MPI") \
	$(if $(filter 0,$(HAVE_EXPAT)),"expat ($(if $(filter 0,$(EXPAT)),as asked,not installed)): no mics-probe --nccl-topo") \
	$(if $(filter 0,$(HAVE_YAML)),"libyaml ($(if $(filter 0,$(YAML)),as asked,not installed)): no topology.yaml for mics-plan --switches") \
	$(if $(filter 0,$(HAVE_ONEDNN)),"oneDNN ($(if $(filter 0,$(ONEDNN)),as asked,no version 2.6 or newer is installed)): products in bf16 only by our own kernels")

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 \
	$(if $(filter 1,$(WERROR)),-Werror)
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DMICS_HAVE_MPI=$(HAVE_MPI) -DMICS_HAVE_PMIX=$(HAVE_PMIX) -DMICS_HAVE_EXPAT=$(HAVE_EXPAT) -DMICS_HAVE_YAML=$(HAVE_YAML) -DMICS_HAVE_ONEDNN=$(HAVE_ONEDNN) -Ilib -Ikernels $(WARN) $(CFLAGS) $(SAN) \
	$(PKG_CFLAGS)
ALL_LIBS = $(LDFLAGS) $(PKG_LIBS) -lpthread -lm

# Sources: every folder of lib is a layer. The plug-in has its own objects (kernels/cuda/cuda.mk).
LIB_SRC  := $(filter-out lib/cli/% lib/device/cuda/% lib/comm/nccl/%,$(sort kernels/optimizer.c kernels/work.c $(shell find lib kernels/host -name '*.c')))
MPI_NONE := lib/comm/mpi/none.c
LIB_SRC  := $(filter-out $(if $(filter 0,$(HAVE_MPI)),$(filter-out $(MPI_NONE),$(wildcard lib/comm/mpi/*.c)),$(MPI_NONE)),$(LIB_SRC))
CLI_SRC  := $(wildcard lib/cli/*.c)
CMD_SRC  := $(wildcard cmd/mics-*.c)
CMD_PART := $(filter-out $(CMD_SRC),$(wildcard cmd/*.c))
CMD_SH   := $(wildcard cmd/mics-*.sh)
TEST_SRC := $(sort $(shell find tests/unit tests/parity -name '*.c'))
CLI_TEST_SRC := $(wildcard tests/cli/*.c)
MPI_TEST_SRC := $(if $(filter 0,$(HAVE_MPI)),,$(wildcard tests/mpi/*.c))
UNIT_SRC := $(foreach f,$(TEST_SRC),$(if $(filter test_%,$(notdir $(f))),$(f)))
object    = $(1:%.c=$(BUILD)/%.o)
PROGRAMS := $(CMD_SRC:cmd/%.c=$(BUILD)/%) $(CMD_SH:cmd/%.sh=$(BUILD)/%)
UNITS    := $(UNIT_SRC:tests/%.c=$(BUILD)/tests/%)
MPI_TESTS := $(MPI_TEST_SRC:tests/%.c=$(BUILD)/tests/%)
CLI_TESTS := $(CLI_TEST_SRC:tests/%.c=$(BUILD)/tests/%)
GPU_TEST_SRC := $(filter-out tests/gpu/check_kernels_%,$(wildcard tests/gpu/*.c))
GPU_TESTS := $(GPU_TEST_SRC:tests/%.c=$(BUILD)/tests/%)
# These start threads, so they also run under ThreadSanitizer. The races of the mutants are
# intended, and ThreadSanitizer does not support the fibers in which the emulator runs the kernels
# of whole models. test_arena measures memory and test_probe rates; their threads are those of
# test_parity and test_bench. The threads of test_llama and test_kernels_half are those of other kernels.
THREADED := $(filter-out %/test_mutants.c %/test_orders.c %/test_arena.c %/test_engine_start.c %/test_probe.c %/test_llama.c %/test_kernels_half.c,$(shell grep -lE '^.include ("(device|comm|engine|train|parity|host/pool)|<pthread.h>|"(harness|cases|model_run|model_gradients|ckpt_ranks).h")' $(UNIT_SRC) /dev/null))

all: programs
programs: $(PROGRAMS)
	@for what in $(LEFT_OUT) $(CUDA_LEFT_OUT); do echo "left out: $$what"; done
tests-build: $(UNITS) $(CLI_TESTS) tests-mpi-build tests-gpu-build
tests-gpu-build: $(GPU_TESTS)
tests-mpi-build: $(MPI_TESTS)
tests-build-threaded: $(THREADED:tests/%.c=$(BUILD)/tests/%)

# With sanitizers -O3 takes three times as long as -O2 for the large kernels, which are then slower.
KERNEL_FLAGS := $(if $(SAN),-O2,-O3) -march=$(MARCH) -mtune=generic -ffp-contract=fast -fno-math-errno -fno-trapping-math
$(BUILD)/kernels/%.o: ALL_CFLAGS += $(KERNEL_FLAGS)
# Products and sums are rounded one by one: the same bits as a GPU's, on every machine.
$(BUILD)/kernels/host/sum_blocks.o: ALL_CFLAGS += -ffp-contract=off
# AddressSanitizer would check the sums that a tile keeps in registers as arrays on the stack, which takes most of the
# time. So it does not see accesses behind this file's buffers on the stack, but all others.
$(BUILD)/kernels/host/gemm.o: ALL_CFLAGS += $(if $(findstring address,$(SAN)),$(if $(findstring clang,$(CC)),,-O3 --param asan-stack=0))
$(BUILD)/kernels/host/onednn.o: ALL_CFLAGS += $(ONEDNN_SONAME:%=-DMICS_ONEDNN_SONAME='"%"')
$(BUILD)/tests/unit/kernels/%.o: ALL_CFLAGS += $(KERNEL_FLAGS)
$(BUILD)/tests/%.o: ALL_CFLAGS += -Itests -Itests/unit
# ThreadSanitizer finds nothing in functions of their arguments alone, nor in the plain loops that kernels are compared
# with, which run in one thread; both would take most of its time.
ifneq ($(findstring thread,$(SAN)),)
UNTHREADED := lib/base/philox.c lib/plan/group.c $(filter-out %/test_pool.c,$(wildcard tests/unit/kernels/test_*.c))
$(call object,$(UNTHREADED)): ALL_CFLAGS += -fno-sanitize=thread
endif
$(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The catalogue of instances is compiled in, as bytes.
$(BUILD)/gen/instances.inc: share/mics/instances.json
	@mkdir -p $(@D)
	$(Q)od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g' >$@
$(BUILD)/lib/topology/catalogue.o $(BUILD)/lib/doc/gnuplot.o: ALL_CFLAGS += -I$(BUILD)/gen
$(BUILD)/lib/topology/catalogue.o: $(BUILD)/gen/instances.inc
# And so are the scripts that draw pictures: {"NAME", bytes}.
$(BUILD)/gen/plots.inc: $(wildcard share/mics/plots/*.gp)
	@mkdir -p $(@D)
	$(Q)for file in $^; do echo "{\"$$(basename $$file .gp)\", (const char[]){"; \
		od -An -v -tx1 $$file | sed 's/ \(..\)/0x\1,/g'; echo '0}},'; done >$@
$(BUILD)/lib/doc/gnuplot.o: $(BUILD)/gen/plots.inc

$(BUILD)/libmics.a: $(call object,$(LIB_SRC))
$(BUILD)/libcli.a: $(call object,$(CLI_SRC))
$(BUILD)/libtests.a: $(call object,$(filter-out $(UNIT_SRC),$(TEST_SRC)))
$(BUILD)/lib%.a:
	$(call say,AR)rm -f $@ && ar rcs $@ $^

# A program may have parts: cmd/NAME_*.c of mics-NAME.
.SECONDEXPANSION:
$(BUILD)/mics-%: $(BUILD)/cmd/mics-%.o $$(call object,$$(wildcard cmd/$$*_*.c)) $(BUILD)/libcli.a $(BUILD)/libmics.a
	$(call say,LINK)$(CC) $(ALL_CFLAGS) -o $@ $^ $(ALL_LIBS)
# A script may have parts: a line ". cmd/FOLDER/FILE" becomes the file.
$(BUILD)/mics-%: cmd/mics-%.sh $(wildcard cmd/*/*.sh) lib/base/version.h
	@mkdir -p $(@D)
	$(call say,SH)awk '/^\. cmd\// { while ((getline line <$$2) > 0) print line; next } { print }' $< | \
		sed 's/@VERSION@/$(VERSION)/' >$@ && chmod +x $@
$(BUILD)/bench/%: $(BUILD)/bench/%.o $$(call object,$$(wildcard bench/$$*_host_*.c)) $(BUILD)/libmics.a
	$(call say,LINK)$(CC) $(ALL_CFLAGS) -o $@ $^ $(ALL_LIBS)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libtests.a $(BUILD)/libcli.a $(BUILD)/libmics.a
	$(call say,LINK)$(CC) $(ALL_CFLAGS) -o $@ $^ $(ALL_LIBS)

include tests/emulator/emulator.mk
include kernels/cuda/cuda.mk
include tests/fuzz/fuzz.mk

# Every source through the front end of $(CC) and $(CXX), for their warnings. Nothing is written but a stamp.
SYNTAX_SRC := $(LIB_SRC) $(CLI_SRC) $(CMD_SRC) $(CMD_PART) $(TEST_SRC) $(CLI_TEST_SRC) $(MPI_TEST_SRC) $(GPU_TEST_SRC)
SYNTAX_CXX := $(patsubst $(BUILD)/emulated/%.o,%,$(EMULATED_OBJ)) $(filter tests/emulator/test_%,$(EMULATOR_SRC)) $(filter %.cc,$(GPU_CHECK_SRC))
syntax: $(SYNTAX_SRC:%=$(BUILD)/syntax/%) $(SYNTAX_CXX:%=$(BUILD)/syntax/%)
$(BUILD)/syntax/%.c: %.c $(BUILD)/settings $(BUILD)/gen/instances.inc $(BUILD)/gen/plots.inc
	@mkdir -p $(@D)
	$(call say,CHECK)$(CC) $(ALL_CFLAGS) -Itests -Itests/unit -I$(BUILD)/gen -fsyntax-only $< && touch $@
$(SYNTAX_CXX:%=$(BUILD)/syntax/%): $(BUILD)/syntax/%: % $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CHECK)$(CXX) $(EMULATED_FLAGS) -fsyntax-only -x c++ $< && touch $@

# Replacements of other libraries, for tests.
FAKES := $(patsubst tests/%.c,$(BUILD)/tests/%.so,$(addprefix tests/fake/,nvml.c clock_ahead.c slow_fsync.c broken_readdir.c))
$(BUILD)/tests/fake/%.so: tests/fake/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) -std=c11 -D_GNU_SOURCE -fPIC -Ilib $(WARN) $(CFLAGS) $(SAN) -MMD -MP -shared -o $@ $<
tests-build tests-mpi-build: $(FAKES)

# Missing libraries are reported before anything is built. Everything is rebuilt when a setting
# changes.
need_libraries = $(if $(MISSING),$(error not installed: $(MISSING) (pkg-config names); try 'make deps'))
SETTINGS := $(CC) $(ALL_CFLAGS) $(ONEDNN_SONAME) $(KERNEL_FLAGS) $(ALL_LIBS) $(CXX) $(EMULATED_FLAGS)
$(BUILD)/settings: FORCE
	$(need_libraries)
	@mkdir -p $(@D)
	@echo '$(SETTINGS)' | cmp -s - $@ || echo '$(SETTINGS)' >$@

deps:
	$(Q)tools/deps build check demo
demo-deps:
	$(Q)tools/deps build $(if $(DEMO_TEXT),,demo)
demo: demo-deps
	$(Q)$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) programs
	$(Q)share/mics/examples/demo.sh $(BUILD)
check: deps
	$(Q)tests/run
lint quick:
	$(Q)tests/run $@
# Programs that bench/plan runs.
bench-programs: $(foreach p,nccl_curves weak_scaling plan_search,$(BUILD)/bench/$p)
bench: all $(patsubst %,$(BUILD)/bench/%,$(if $(filter 0,$(HAVE_MPI)),,bare) measure kernels encode reading blocks grouped)
	$(Q)bench/run $(BUILD)
	$(Q)bench/shard $(BUILD)
	$(Q)bench/text $(BUILD) $(or $(BENCH_PYTHON),python3) $(BENCH_TOKENIZERS)
	$(Q)$(BUILD)/bench/kernels
	$(Q)bench/compress $(BUILD)
	$(Q)bench/experts $(BUILD)
bench-plan: all bench-programs
	$(Q)BUILD=$(BUILD) bench/plan/run
bench-lab: all $(BUILD)/bench/copies
	$(Q)for part in lab collectives training paced; do bench/$$part $(BUILD) || exit 1; done

MAN_PAGES   := $(wildcard man/*.[157])
PROGRAM_NAMES := $(PROGRAMS:$(BUILD)/%=%)
PLUGIN_FILES  = $(wildcard $(PLUGIN))
SHARED_FILES := $(wildcard share/mics/* share/mics/*/*)
install_to   = $(DESTDIR)$(PREFIX)
COMPLETIONS  = $(install_to)/share/bash-completion/completions
install: all
	install -d $(install_to)/bin $(COMPLETIONS)
	for program in $(PROGRAMS); do install $$program $(install_to)/bin || exit; done
	for plugin in $(PLUGIN_FILES); do install -D $$plugin $(install_to)/lib/mics/$${plugin##*/} || exit; done
	for page in $(MAN_PAGES); do \
		install -D -m 644 $$page $(install_to)/share/man/man$${page##*.}/$${page##*/} || exit; done
	for file in $(SHARED_FILES); do [ -d $$file ] || \
		install -D -m $$([ -x $$file ] && echo 755 || echo 644) $$file $(install_to)/$$file || exit; done
	install -m 644 completions/mics.bash $(COMPLETIONS)/mics
	for name in $(PROGRAM_NAMES); do ln -sf mics $(COMPLETIONS)/$$name || exit; done
uninstall:
	rm -f $(PROGRAM_NAMES:%=$(install_to)/bin/%) $(PROGRAM_NAMES:%=$(COMPLETIONS)/%) $(COMPLETIONS)/mics
	for page in $(MAN_PAGES); do rm -f $(install_to)/share/man/man$${page##*.}/$${page##*/}; done
	rm -rf $(install_to)/share/mics $(install_to)/lib/mics

dist: $(BUILD)/mics-$(VERSION).tar.gz
$(BUILD)/mics-$(VERSION).tar.gz: FORCE
	@mkdir -p $(@D)
	git archive --prefix=mics-$(VERSION)/ -o $@ HEAD
clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^#| \{0,1\}//p' $(MAKEFILE_LIST)
#| Targets:
#|   all          the programs and, with nvcc, the GPU's plug-in, into $BUILD (default)
#|   programs     only the programs
#|   deps         install the Debian packages that building and checking need
#|   demo         deps, build, and go from text to a sharded GPT that writes text
#|   check        deps, build, and every test; the last line counts them
#|   quick        build, lint and the unit tests that take seconds
#|   lint         only the checks of form
#|   bench        start-up, planning time, memory, kernels, conversions, text (1 GB, some minutes)
#|   bench-plan   predictions and choices against measurements, a new file of bench/results (many minutes)
#|   bench-lab    collectives and training in an emulated cluster (needs mics-lab; many minutes)
#|   install      programs, manual pages, completions, share/mics under $DESTDIR$PREFIX
#|   uninstall    remove what install has installed
#|   dist         $BUILD/mics-VERSION.tar.gz of the last commit
#|   tests-build  the unit tests, without running them
#|   syntax       the warnings of CC and CXX for every source, without objects
#|   fuzz-build   the fuzz targets (FUZZ_CC=clang)
#|   clean        remove $BUILD
#| Settings:
#|   BUILD=build  PREFIX=/usr/local  DESTDIR=  CC=gcc|clang  CFLAGS='-O2 -g'  V=0|1
#|   MARCH=native    instruction set of the kernels; x86-64-v3 runs on other machines, too
#|   MPI=auto        0 leaves Open MPI out, 1 insists on it
#|   EXPAT=auto      0 leaves expat out, 1 insists on it
#|   YAML=auto       0 leaves libyaml out, 1 insists on it
#|   ONEDNN=auto     0 leaves oneDNN out, 1 insists on it
#|   BENCH_PYTHON=python3 BENCH_TOKENIZERS='gpt2/tokenizer.json ...'   for bench/text
#|   SAN=            sanitizers, as -fsanitize=address,undefined; give them a BUILD of their own
#|   WERROR=0        1: warnings are errors

FORCE:
.PHONY: all programs bench-programs syntax fuzz-build tests-build tests-mpi-build tests-gpu-build tests-build-threaded deps demo-deps demo check quick lint bench bench-plan bench-lab install uninstall dist clean help FORCE
.SECONDARY:
-include $(patsubst %.c,$(BUILD)/%.d,$(LIB_SRC) $(CLI_SRC) $(CMD_SRC) $(CMD_PART) $(TEST_SRC) $(CLI_TEST_SRC) $(MPI_TEST_SRC) $(GPU_TEST_SRC) $(FAKES:$(BUILD)/%.so=%.c) bench/bare.c bench/measure.c bench/encode.c bench/reading.c $(wildcard bench/kernels*host*.c) bench/kernels.c bench/nccl_curves.c bench/weak_scaling.c bench/plan_search.c bench/copies.c bench/blocks.c bench/grouped.c)
