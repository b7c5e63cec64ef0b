# SPDX-License-Identifier: Apache-2.0
# ptx.mk - the PTX of the kernels, and recordings of them for tests/ptx/run, which executes it.

# The chips that are recorded, of those that the plug-in is built for.
PTX_CHIPS  := $(if $(filter 75,$(ARCHS)),sm_75) $(if $(filter 80,$(ARCHS)),sm_80) $(if $(filter 90 90a,$(ARCHS)),sm_90)
PTX_CASES  := $(foreach c,$(PTX_CHIPS),$(BUILD)/ptx/cases/$(c)/done)
PTX_RECORD := $(BUILD)/tests/ptx/record
PTX_OBJ    := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/ptx/*.c))

# The very files that ptxas assembled into the plug-in, by architecture: build/ptx/sm_80/add.ptx.
$(BUILD)/ptx/done: $(KERNEL_OBJ) $(BUILD)/cuda/settings
	@rm -rf $(BUILD)/ptx
	@for ptx in $(foreach o,$(KERNEL_OBJ),$(o:.o=.ptx)/*.ptx); do \
		arch=$${ptx##*/} && folder=$${ptx%/*} && file=$${folder##*/} && \
		mkdir -p $(BUILD)/ptx/$${arch%.ptx} && \
		cp $$ptx $(BUILD)/ptx/$${arch%.ptx}/$${file%.cu.ptx}.ptx || exit; done
	@touch $@

# The plug-in's own launch code on the recording runtime. An archive: only what cases call is linked.
PTX_LAUNCH := $(KERNEL_OBJ) $(KERNELS_CC:%=$(BUILD)/cuda/%.o)
$(BUILD)/ptx/libkernels.a: $(PTX_LAUNCH) $(BUILD)/ptx/done
	$(call say,AR)rm -f $@ && ar rcs $@ $(PTX_LAUNCH)
$(PTX_OBJ): $(BUILD)/%.o: %.c $(BUILD)/settings $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) -DMICS_HOPPER=$(HOPPER) $(addprefix -isystem ,$(RUNTIME_INC)) -MMD -MP -c -o $@ $<
$(PTX_RECORD): $(PTX_OBJ) $(BUILD)/ptx/libkernels.a $(BUILD)/libmics.a
	@mkdir -p $(@D)
	$(call say,LINK)$(CXX) $(SAN) -o $@ $^ $(ALL_LIBS)
$(PTX_CASES): $(BUILD)/ptx/cases/%/done: $(PTX_RECORD) $(BUILD)/ptx/done
	@rm -rf $(@D) && mkdir -p $(@D)
	$(Q)$(PTX_RECORD) --chip=$* $(BUILD)/ptx $(@D)
	@touch $@

ptx-cases: $(if $(filter 1,$(HAVE_CUDA)),$(PTX_CASES))
.PHONY: ptx-cases
-include $(PTX_OBJ:.o=.d)
