# SPDX-License-Identifier: Apache-2.0
# ptx.mk - the PTX of the kernels, and recordings of them for tests/ptx/run, which executes it.

PTX_FOLDERS := $(BUILD)/ptx/sm_80 $(BUILD)/ptx/sm_90 $(BUILD)/ptx/sm_90a
PTX_RECORD  := $(BUILD)/tests/ptx/record
PTX_OBJ     := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/ptx/*.c))
PTX_CASES   := $(foreach c,sm_80 sm_90,$(BUILD)/ptx/cases/$(c)/done)

# The very files that ptxas assembled into the plug-in, by architecture: build/ptx/sm_80/add.ptx.
$(BUILD)/ptx/done: $(KERNEL_OBJ)
	@rm -rf $(BUILD)/ptx && mkdir -p $(PTX_FOLDERS)
	@for ptx in $(foreach o,$(KERNEL_OBJ),$(o:.o=.ptx)/*.ptx); do \
		folder=$${ptx%/*} && file=$${folder##*/} && arch=$${ptx##*/} && \
		cp $$ptx $(BUILD)/ptx/$${arch%.ptx}/$${file%.cu.ptx}.ptx || exit; done
	@touch $@

# The plug-in's own launch code on the recording runtime. An archive: only what cases call is linked.
$(BUILD)/ptx/libkernels.a: $(KERNEL_OBJ) $(BUILD)/ptx/done
	$(call say,AR)rm -f $@ && ar rcs $@ $(KERNEL_OBJ)
$(PTX_OBJ): $(BUILD)/%.o: %.c $(BUILD)/settings $(BUILD)/cuda/settings
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(addprefix -isystem ,$(RUNTIME_INC)) -MMD -MP -c -o $@ $<
$(PTX_RECORD): $(PTX_OBJ) $(BUILD)/ptx/libkernels.a $(BUILD)/libmics.a
	@mkdir -p $(@D)
	$(call say,LINK)$(CXX) -o $@ $^ $(ALL_LIBS)
$(PTX_CASES): $(BUILD)/ptx/cases/%/done: $(PTX_RECORD) $(BUILD)/ptx/done
	@rm -rf $(@D) && mkdir -p $(@D)
	$(PTX_RECORD) --chip=$* $(BUILD)/ptx $(@D)
	@touch $@

ptx-cases: $(if $(filter 1,$(HAVE_CUDA)),$(PTX_CASES))
.PHONY: ptx-cases
-include $(PTX_OBJ:.o=.d)
