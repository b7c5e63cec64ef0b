/* SPDX-License-Identifier: Apache-2.0 */
/* A sample for the layer rule: base must not know of documents. */
#include "doc/doc.h"
