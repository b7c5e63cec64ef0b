# SPDX-License-Identifier: Apache-2.0
# fuzz.mk - libFuzzer targets with the sanitizers of addresses and undefined behaviour. Included by the Makefile.
#
# A target tests/fuzz/fuzz_NAME.c names what it is linked with in a line "sources: FOLDER|FILE...".
# Objects that several targets share are compiled once. Kernels, which parse nothing, are compiled without sanitizers.

FUZZ_CC     ?= clang
FUZZ_NAMES  := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_FLAGS  := -std=c11 -D_GNU_SOURCE -DMICS_HAVE_EXPAT=$(HAVE_EXPAT) -DMICS_HAVE_YAML=$(HAVE_YAML) -Ilib -Ikernels -I$(BUILD)/gen -O1 -g1 -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=undefined
FUZZ_PKGS   := jansson hwloc openblas libxxhash libutf8proc libpcre2-8 zlib libzstd $(filter msgpack%,$(PKGS)) $(filter expat yaml%,$(PKGS))
fuzz_source  = $(foreach p,$(shell sed -n 's/^.*sources: *//p' tests/fuzz/fuzz_$(1).c),$(if $(filter %.c,$(p)),$(p),$(shell find $(p) -name '*.c')))
fuzz_objects = $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(sort tests/fuzz/fuzz_$(1).c $(call fuzz_source,$(1))))

$(BUILD)/fuzz/obj/kernels/%.o: FUZZ_FLAGS := $(filter-out -fsanitize=% -fno-sanitize%,$(FUZZ_FLAGS))
fuzz-build: $(FUZZ_NAMES:%=$(BUILD)/fuzz/fuzz_%)
$(BUILD)/fuzz/obj/%.o: %.c $(BUILD)/gen/instances.inc $(BUILD)/gen/plots.inc
	@mkdir -p $(@D)
	$(call say,FUZZ)$(FUZZ_CC) $(FUZZ_FLAGS) $(shell pkg-config --cflags $(FUZZ_PKGS)) -MMD -MP -c -o $@ $<
.SECONDEXPANSION:
$(BUILD)/fuzz/fuzz_%: $$(call fuzz_objects,$$*)
	$(call say,LINK)$(FUZZ_CC) $(FUZZ_FLAGS) -o $@ $^ -Wl,--as-needed $(shell pkg-config --libs $(FUZZ_PKGS)) -lpthread -ldl -lm
-include $(shell find $(BUILD)/fuzz/obj -name '*.d' 2>/dev/null)
