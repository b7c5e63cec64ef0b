/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_form.h - the part of a manifest that says how the state is laid out. */
#ifndef MICS_CKPT_MANIFEST_FORM_H
#define MICS_CKPT_MANIFEST_FORM_H

#include "ckpt/manifest.h"

/* Each a new reference, or NULL without memory. */
json_t *mics_form_shape(const struct mics_shape *shape);
json_t *mics_form_states(uint32_t states);
json_t *mics_form_unit(const struct mics_unit *unit, const struct mics_layout *layout);
json_t *mics_form_units(const struct mics_ckpt_form *form);

#endif
