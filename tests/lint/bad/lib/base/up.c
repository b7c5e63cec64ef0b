/* SPDX-License-Identifier: Apache-2.0 */
/* A sample for the layer rule: base must not include documents. */
#include "doc/doc.h"
