# SPDX-License-Identifier: Apache-2.0
# emulator.mk - kernels/cuda compiled for the host against the headers in tests/emulator, and the programs that run it.
# Included by the Makefile.
ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
EMULATOR_SRC   := $(wildcard tests/emulator/*.cc)
EMULATED_UNITS := $(patsubst %.cc,$(BUILD)/%,$(filter tests/emulator/test_%,$(EMULATOR_SRC)))
EMULATED_OBJ   := $(patsubst %,$(BUILD)/emulated/%.o,$(wildcard kernels/cuda/*.cu kernels/cuda/*.cc) \
	$(filter-out tests/emulator/test_%,$(EMULATOR_SRC)))
# Thread-local variables are few, so that the loader finds room for them beside the program's: others would take a
# call for each access in the plug-in.
EMULATED_TLS   := -ftls-model=initial-exec
EMULATED_FLAGS  = -std=c++20 -D_GNU_SOURCE -DMICS_EMULATED -DMICS_HOPPER=0 -Itests/emulator -Ikernels -Ilib -Itests/unit \
	$(filter-out %-prototypes,$(WARN)) -Wno-unknown-pragmas -Wno-psabi $(CFLAGS) -fPIC -ffp-contract=fast \
	-fno-strict-aliasing -march=$(MARCH) $(EMULATED_TLS) $(SAN)
# Products and sums are fused as nvcc fuses them. Where most of the time is spent:
$(patsubst %,$(BUILD)/emulated/tests/emulator/%.cc.o,cublasLt_product tensor_emulated): EMULATED_FLAGS += -O3
$(BUILD)/emulated/%.cc.o: %.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(EMULATED_FLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/emulated/%.cu.o: %.cu $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(EMULATED_FLAGS) -MMD -MP -c -o $@ -x c++ $<
$(BUILD)/emulated/libemulated.a: $(EMULATED_OBJ)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
$(BUILD)/tests/emulator/%: $(BUILD)/emulated/tests/emulator/%.cc.o $(BUILD)/emulated/libemulated.a $(BUILD)/libmics.a
	@mkdir -p $(@D)
	$(call say,LINK)$(CXX) $(EMULATED_FLAGS) -o $@ $^ $(ALL_LIBS)
# Checks of the kernels, which run on a real GPU, too.
GPU_CHECK_SRC  := $(wildcard tests/gpu/check_*.cc tests/gpu/check_kernels_*.c)
GPU_CHECKS     := $(addprefix $(BUILD)/,$(basename $(GPU_CHECK_SRC)))
$(BUILD)/emulated/tests/gpu/%.o: tests/gpu/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) -std=c11 -D_GNU_SOURCE -DMICS_EMULATED -Itests/emulator -Ikernels -Ilib -Itests/unit \
		$(WARN) $(CFLAGS) $(SAN) -MMD -MP -c -o $@ $<
$(BUILD)/emulated/tests/gpu/%.o: tests/gpu/%.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(EMULATED_FLAGS) -MMD -MP -c -o $@ $<
$(GPU_CHECKS): $(BUILD)/tests/gpu/%: $(BUILD)/emulated/tests/gpu/%.o $(BUILD)/emulated/libemulated.a $(BUILD)/libmics.a
	@mkdir -p $(@D)
	$(call say,LINK)$(CXX) $(EMULATED_FLAGS) -o $@ $^ $(ALL_LIBS)
tests-build: $(EMULATED_UNITS) $(GPU_CHECKS) $(BUILD)/bench/gpu_step
-include $(EMULATED_OBJ:.o=.d) $(EMULATED_UNITS:$(BUILD)/%=$(BUILD)/emulated/%.cc.d) \
	$(patsubst %,$(BUILD)/emulated/%.d,$(basename $(GPU_CHECK_SRC)))
