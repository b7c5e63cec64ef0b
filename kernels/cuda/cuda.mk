# SPDX-License-Identifier: Apache-2.0
# cuda.mk - the GPU's plug-in, $(BUILD)/libmics-cuda.so; and the same sources for the emulator of the tests,
# $(BUILD)/emulated/libmics-cuda.so. No program links CUDA: programs open the plug-in at run time.
#
#| GPU settings:
#|   CUDA=auto       0 leaves the GPU's plug-in out, 1 insists on it (it needs nvcc, no GPU)
#|   CUDA_HOME=      folder of CUDA (default: where nvcc is)      NVCC=$CUDA_HOME/bin/nvcc
#|   CUDA_ARCH=      compute capabilities to build for, as '80 90' (default: those of this machine's GPUs if
#|                   nvcc knows them, else 80 90); later GPUs compile the PTX of the last
#|   BENCH_ARCH=     one capability that the GPU's benchmarks are built for (default: as CUDA_ARCH); their many
#|                   variants of kernels take minutes to compile
#|   HOPPER=0        leaves out the attention kernels for compute capability 9.0 alone, which a build for 90 has
#|   NCCL_HOME=      folder of NCCL (default: in CUDA's, the system's or pip's; 0 leaves it out)

CUDA      ?= auto
ifneq ($(CUDA),0)
ifneq ($(CUDA_HOME),)
NVCC      ?= $(CUDA_HOME)/bin/nvcc
else
NVCC      ?= nvcc
endif
# nvcc with symbolic links resolved; the headers are two folders above it.
NVCC_PATH := $(realpath $(shell command -v $(NVCC) 2>/dev/null))
endif
ifneq ($(NVCC_PATH),)
CUDA_HOME := $(if $(CUDA_HOME),$(CUDA_HOME),$(patsubst %/bin/nvcc,%,$(NVCC_PATH)))
endif

# The kernels need 7.5 or later. GPUs newer than nvcc compile the PTX of the default.
ifeq ($(origin CUDA_ARCH),undefined)
ifneq ($(NVCC_PATH),)
CUDA_ARCH := $(shell { $(NVCC_PATH) --list-gpu-arch; nvidia-smi --query-gpu=compute_cap --format=csv,noheader; } 2>/dev/null | \
	awk '/^compute_/ { known[substr($$1, 9)] = 1; next } \
		{ sub(/\./, "") } $$1 !~ /^[0-9]+$$/ || $$1 < 75 { next } \
		$$1 in known { archs[$$1] = 1; next } { newer = 1 } \
		END { if (!newer) for (a in archs) print a }' | sort -n)
endif
endif
ifeq ($(strip $(CUDA_ARCH)),)
CUDA_ARCH := 80 90
endif

CUDA_SYSTEM ?= /usr /usr/local
# Each library is looked for in CUDA's folder, in the system's, and in pip's packages (nvidia/NAME/include of
# CUDA 12, nvidia/cu13/include), which Python is queried for only if the others lack a library.
first_with = $(firstword $(wildcard $(1)))
cuda_has   = $(call first_with,$(foreach i,$(2),$(i)/$(1)))
CUDA_INCLUDES := $(CUDA_HOME)/include $(CUDA_HOME)/targets/x86_64-linux/include $(NCCL_HOME:%=%/include) \
	$(CUDA_SYSTEM:%=%/include)
ifneq ($(NVCC_PATH),)
ifneq ($(words $(foreach h,cuda_runtime.h cublasLt.h nccl.h,$(call cuda_has,$(h),$(CUDA_INCLUDES)))),3)
PIP_NVIDIA := $(shell python3 -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null)
CUDA_INCLUDES += $(foreach p,$(PIP_NVIDIA),$(wildcard $(p)/cu13/include $(p)/*/include))
endif
endif
cuda_header = $(call cuda_has,$(1),$(CUDA_INCLUDES))
# Folders of libraries that belong to the folders of headers found.
libs_of     = $(foreach i,$(1),$(patsubst %/include,%,$(i))/lib64 $(patsubst %/include,%,$(i))/lib \
	$(patsubst %/include,%,$(i))/lib/x86_64-linux-gnu)
# A library by its headers' folder: the name that links, or one with a number (pip has no other).
cuda_lib    = $(firstword $(foreach n,$(2),$(wildcard $(foreach d,$(call libs_of,$(1)),$(d)/$(n)))))

RUNTIME_INC := $(patsubst %/cuda_runtime.h,%,$(call cuda_header,cuda_runtime.h))
BLASLT_INC  := $(patsubst %/cublasLt.h,%,$(call cuda_header,cublasLt.h))
NCCL_INC    := $(if $(filter 0,$(NCCL_HOME)),,$(patsubst %/nccl.h,%,$(call cuda_header,nccl.h)))
RUNTIME_LIB := $(call cuda_lib,$(RUNTIME_INC),libcudart_static.a libcudart.so libcudart.so.13 libcudart.so.12)
BLASLT_LIB  := $(call cuda_lib,$(BLASLT_INC),libcublasLt.so libcublasLt.so.13 libcublasLt.so.12)
NCCL_LIB    := $(if $(NCCL_INC),$(call cuda_lib,$(NCCL_INC),libnccl.so libnccl.so.2))
CUDA_LACKS  := $(if $(NVCC_PATH),$(if $(RUNTIME_LIB),,cudart)$(if $(BLASLT_LIB),, cublasLt),nvcc)

HAVE_CUDA := $(if $(filter 0,$(CUDA)),0,$(if $(strip $(CUDA_LACKS)),0,1))
HAVE_NCCL := $(if $(NCCL_LIB),1,0)
ifeq ($(CUDA),1)
ifeq ($(HAVE_CUDA),0)
$(error CUDA=1, but there is no $(strip $(CUDA_LACKS)); CUDA_HOME= or NVCC= say where)
endif
endif
ifeq ($(HAVE_CUDA),0)
CUDA_LEFT_OUT := "the GPU's plug-in ($(if $(filter 0,$(CUDA)),as asked,no $(strip $(CUDA_LACKS)))): no device cuda"
else
ifeq ($(HAVE_NCCL),0)
CUDA_LEFT_OUT := "NCCL ($(if $(filter 0,$(NCCL_HOME)),as asked,no nccl.h with its library)): GPUs talk over MPI"
endif
endif

# "sm_90" and "90" are the same. PTX is built for the last one, unless it is architecture-specific
# ("90a").
ARCHS      := $(patsubst sm_%,%,$(CUDA_ARCH))
ARCH_PTX   := $(filter-out %a,$(lastword $(ARCHS)))
# Kernels with instructions that only compute capability 9.0 has.
HOPPER     ?= $(if $(filter 90 90a,$(ARCHS)),1,0)
ifeq ($(HOPPER)$(filter 90 90a,$(ARCHS)),1)
$(error HOPPER=1, but CUDA_ARCH='$(CUDA_ARCH)' has no 90)
endif

# Sources: the device, the operations, NCCL; and the parts of the library that they use, of which
# the plug-in has its own copy.
PLUGIN_CU  := $(wildcard kernels/cuda/*.cu) $(if $(filter 1,$(HOPPER)),$(wildcard kernels/cuda/hopper/*.cu))
# Files without kernels are compiled by the host's compilers, which are much faster than nvcc.
KERNELS_C  := $(wildcard kernels/cuda/*.c)
KERNELS_CC := $(wildcard kernels/cuda/*.cc)
PLUGIN_C   := $(wildcard lib/device/cuda/*.c lib/comm/nccl/*.c) $(KERNELS_C) lib/base/dir.c lib/base/err.c lib/base/file.c lib/base/utf8.c \
	lib/comm/backend.c lib/comm/ring_tree.c
NCCL_ONLY  := $(wildcard lib/comm/nccl/*.c)
without_nccl = $(if $(filter 0,$(1)),$(filter-out $(NCCL_ONLY),$(2)),$(2))

empty      :=
comma      := ,
space      := $(empty) $(empty)
GENCODE    := $(foreach a,$(ARCHS),-gencode arch=compute_$(a)$(comma)code=sm_$(a)) \
	$(foreach a,$(ARCH_PTX),-gencode arch=compute_$(a)$(comma)code=compute_$(a))
GENCODE_HOPPER := -gencode arch=compute_90a$(comma)code=sm_90a
ifneq ($(word 2,$(BENCH_ARCH)),)
$(error BENCH_ARCH='$(BENCH_ARCH)': expected one compute capability)
endif
ARCH_BENCH := $(patsubst sm_%,%,$(strip $(BENCH_ARCH)))
GENCODE_BENCH := $(if $(ARCH_BENCH),-gencode arch=compute_$(ARCH_BENCH)$(comma)code=sm_$(ARCH_BENCH),$(GENCODE))
gencode_for = $(if $(findstring hopper,$(1)),$(GENCODE_HOPPER),$(if $(filter bench/%,$(1)),$(GENCODE_BENCH),$(GENCODE)))
REAL_DEFINES = -DMICS_PLUGIN_NAME='"cuda"' \
	-DMICS_PLUGIN_BUILT='"sm_$(subst $(space), sm_,$(ARCHS))$(ARCH_PTX:%= and PTX %)"' \
	-DMICS_CUDA_SM=$(subst $(space),$(comma),$(patsubst %a,%,$(ARCHS))) \
	-DMICS_CUDA_PTX=$(if $(ARCH_PTX),$(ARCH_PTX),0) -DMICS_HAVE_NCCL=$(HAVE_NCCL)
FAKE_DEFINES = -DMICS_EMULATED -DMICS_PLUGIN_NAME='"emulated"' -DMICS_PLUGIN_BUILT='"for tests"' \
	-DMICS_CUDA_SM=75,80,90 -DMICS_CUDA_PTX=90 -DMICS_HAVE_NCCL=1
NVCC_FLAGS = -std=c++17 -O3 -lineinfo -ccbin $(CXX) -Xcompiler -fPIC,-fvisibility=hidden,-Wall \
	-Ilib -Ikernels $(addprefix -isystem ,$(sort $(BLASLT_INC) $(NCCL_INC)))
PLUGIN_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -Ilib -Ikernels $(WARN) $(CFLAGS)
PLUGIN_CXXFLAGS = -std=c++17 -D_GNU_SOURCE -fPIC -fvisibility=hidden -DMICS_HOPPER=$(HOPPER) -Ilib -Ikernels \
	$(filter-out %-prototypes,$(WARN)) $(CFLAGS)
quoted      = '$(subst ','\'',$(1))'
PLUGIN_LINK = -shared -Wl,--version-script=lib/device/cuda/plugin.map -Wl,-z,defs -Wl,--exclude-libs,ALL
rpath_of    = $(addprefix -Wl$(comma)-rpath$(comma),$(sort $(patsubst %/,%,$(dir $(filter %.so %.so.2 %.so.12 %.so.13,$(1))))))

PLUGIN      := $(BUILD)/libmics-cuda.so
PLUGIN_OBJ  := $(patsubst %,$(BUILD)/cuda/%.o,$(call without_nccl,$(HAVE_NCCL),$(PLUGIN_CU) $(KERNELS_CC) $(PLUGIN_C)))
CUDA_LIBS    = $(RUNTIME_LIB) $(BLASLT_LIB) $(NCCL_LIB)

$(PLUGIN): $(PLUGIN_OBJ) lib/device/cuda/plugin.map
	$(call say,LINK)$(CXX) $(PLUGIN_LINK) -static-libstdc++ -static-libgcc -o $@ $(PLUGIN_OBJ) $(CUDA_LIBS) \
		$(call rpath_of,$(CUDA_LIBS)) -lrt -lpthread -ldl -lm
# The PTX that ptxas assembles stays beside the object, in NAME.cu.ptx/TARGET.ptx: tests/ptx executes it.
$(BUILD)/cuda/%.cu.o: %.cu $(BUILD)/cuda/settings-nvcc
	@rm -rf $(@:.o=.keep) $(@:.o=.ptx) && mkdir -p $(@:.o=.keep) $(@:.o=.ptx)
	$(call say,NVCC)$(NVCC_PATH) $(NVCC_FLAGS) $(call gencode_for,$<) --keep --keep-dir $(@:.o=.keep) \
		-MMD -MP -MF $(@:.o=.d) -c -o $@ $<
	@for ptx in $(@:.o=.keep)/*.ptx; do \
		mv $$ptx $(@:.o=.ptx)/$$(sed -n 's/^\.target *\(sm_[0-9a-z]*\).*/\1/p' $$ptx).ptx || exit; done; rm -r $(@:.o=.keep)
$(BUILD)/cuda/%.c.o: %.c $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(PLUGIN_CFLAGS) $(REAL_DEFINES) \
		$(addprefix -isystem ,$(sort $(RUNTIME_INC) $(BLASLT_INC) $(NCCL_INC))) -MMD -MP -c -o $@ $<
$(BUILD)/cuda/%.cc.o: %.cc $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(PLUGIN_CXXFLAGS) $(addprefix -isystem ,$(sort $(RUNTIME_INC) $(BLASLT_INC))) \
		-MMD -MP -c -o $@ $<
# Kernels are not recompiled if only flags of the host's compilers change.
$(BUILD)/cuda/settings: CUDA_SETTINGS = $(CC) $(CXX) $(PLUGIN_CFLAGS) $(PLUGIN_CXXFLAGS) $(REAL_DEFINES) $(CUDA_LIBS)
$(BUILD)/cuda/settings-nvcc: CUDA_SETTINGS = $(NVCC_PATH) $(NVCC_FLAGS) $(GENCODE)
$(BUILD)/cuda/settings-bench: CUDA_SETTINGS = $(GENCODE_BENCH)
$(BUILD)/cuda/settings $(BUILD)/cuda/settings-nvcc $(BUILD)/cuda/settings-bench: FORCE
	$(need_libraries)
	@mkdir -p $(@D)
	@echo $(call quoted,$(CUDA_SETTINGS)) | cmp -s - $@ || echo $(call quoted,$(CUDA_SETTINGS)) >$@

# The checks of the kernels, for a real GPU: with the plug-in's objects instead of the emulator's.
REAL_CHECKS := $(patsubst tests/gpu/%,$(BUILD)/gpu/%,$(basename $(wildcard tests/gpu/check_*.cc tests/gpu/check_kernels_*.c)))
KERNEL_OBJ   = $(filter $(BUILD)/cuda/kernels/cuda/%.cu.o,$(PLUGIN_OBJ))
KERNEL_HOST  = $(patsubst %,$(BUILD)/cuda/%.o,$(KERNELS_C) $(KERNELS_CC))
gpu-bench: $(BUILD)/bench/gpu_step $(if $(filter 1,$(HAVE_CUDA)),$(BUILD)/bench/attention_gpu $(BUILD)/bench/kernels_gpu)
$(BUILD)/cuda/bench/%.cu.o: private NVCC_FLAGS += -DMICS_HOPPER=$(HOPPER)
$(BUILD)/cuda/bench/attention_gpu.cu.o: $(BUILD)/cuda/settings
$(patsubst %,$(BUILD)/cuda/bench/%.cu.o,attention_gpu kernels_gpu_copy): $(BUILD)/cuda/settings-bench
$(BUILD)/bench/attention_gpu: $(BUILD)/cuda/bench/attention_gpu.cu.o $(if $(filter 1,$(HOPPER)),$(BUILD)/cuda/bench/attention_gpu_hopper.cu.o)
	@mkdir -p $(@D)
	$(call say,LINK)$(CXX) -o $@ $^ $(RUNTIME_LIB) $(call rpath_of,$(RUNTIME_LIB)) -lrt -lpthread -ldl
gpu-checks: $(if $(filter 1,$(HAVE_CUDA)),$(REAL_CHECKS))
$(BUILD)/gpu/tests/gpu/%.o: tests/gpu/%.cc $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) -std=c++20 -D_GNU_SOURCE -O2 -g -Ilib -Ikernels -Itests/unit -Itests/gpu \
		$(addprefix -isystem ,$(sort $(RUNTIME_INC) $(BLASLT_INC))) -MMD -MP -c -o $@ $<
$(BUILD)/gpu/tests/gpu/%.o: tests/gpu/%.c $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Ilib -Ikernels -Itests/unit -Itests/gpu $(WARN) \
		$(addprefix -isystem ,$(sort $(RUNTIME_INC) $(BLASLT_INC))) -MMD -MP -c -o $@ $<
$(BUILD)/gpu/%: $(BUILD)/gpu/tests/gpu/%.o $(KERNEL_OBJ) $(KERNEL_HOST) $(BUILD)/libmics.a
	$(call say,LINK)$(CXX) -o $@ $(filter-out %.a,$^) $(BUILD)/libmics.a $(CUDA_LIBS) $(call rpath_of,$(CUDA_LIBS)) \
		$(ALL_LIBS) -lrt -ldl

$(BUILD)/gpu/bench/%.o: bench/%.c $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Ilib -Ikernels -Ibench $(WARN) \
		$(addprefix -isystem ,$(sort $(RUNTIME_INC) $(BLASLT_INC))) -MMD -MP -c -o $@ $<
KERNELS_GPU := $(patsubst %,$(BUILD)/gpu/bench/%.o,kernels_gpu kernels_gpu_attention kernels_gpu_memory kernels_gpu_products) $(BUILD)/cuda/bench/kernels_gpu_copy.cu.o
$(BUILD)/bench/kernels_gpu: $(KERNELS_GPU) $(KERNEL_OBJ) $(KERNEL_HOST) $(filter $(BUILD)/cuda/lib/base/%,$(PLUGIN_OBJ))
	@mkdir -p $(@D)
	$(call say,LINK)$(CXX) -o $@ $^ $(CUDA_LIBS) $(call rpath_of,$(CUDA_LIBS)) -lrt -lpthread -ldl -lm

# The emulated plug-in: the objects that the emulator's tests are built from, and the device.
FAKE       := $(BUILD)/emulated/libmics-cuda.so
FAKE_OBJ   := $(PLUGIN_C:%=$(BUILD)/emulated/%.o)
KERNEL_FAKE := $(KERNELS_C:%=$(BUILD)/emulated/%.o)
FAKE_C      = $(CC) $(PLUGIN_CFLAGS) $(SAN) $(FAKE_DEFINES) -Itests/emulator

all: plugin
plugin: $(if $(filter 1,$(HAVE_CUDA)),$(PLUGIN))
plugin-emulated: $(FAKE)
tests-mpi-build: $(FAKE)
$(BUILD)/emulated/libemulated.a: $(KERNEL_FAKE)
$(FAKE): $(FAKE_OBJ) $(EMULATED_OBJ) lib/device/cuda/plugin.map
	$(call say,LINK)$(CXX) $(SAN) -shared -Wl,--version-script=lib/device/cuda/plugin.map \
		$(if $(SAN),,-Wl$(comma)-z$(comma)defs) -o $@ $(FAKE_OBJ) $(EMULATED_OBJ) -lpthread -lm
$(FAKE_OBJ): $(BUILD)/emulated/%.o: % $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CC)$(FAKE_C) -MMD -MP -c -o $@ $<

# Libraries that the programs must refuse as a plug-in.
WRONG_PLUGINS := $(foreach w,no_entry refuses unresolved wrong_size wrong_device wrong_kernels wrong_arguments,$(BUILD)/tests/plugins/$(w).so)
$(WRONG_PLUGINS): $(BUILD)/tests/plugins/%.so: tests/fake/plugin.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -std=c11 -D_GNU_SOURCE -D$* -fPIC -shared -Ilib -Ikernels $(WARN) -MMD -MP -o $@ $<
tests-build tests-build-threaded: $(FAKE) $(WRONG_PLUGINS)

.PHONY: plugin plugin-emulated gpu-checks gpu-bench
-include $(PLUGIN_OBJ:.o=.d) $(FAKE_OBJ:.o=.d) $(WRONG_PLUGINS:.so=.d) \
	$(wildcard $(BUILD)/gpu/tests/gpu/*.d $(BUILD)/gpu/bench/*.d $(BUILD)/cuda/bench/*.d)
include tests/ptx/ptx.mk
