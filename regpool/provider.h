/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

struct ibv_context;

/*
 * Hooks functions that a context has, so that they come here, too, before a PD of
 * it has a memory region. If the provider's are not found, leaves those and logs that once.
 * Idempotent. Thread-safe.
 */
void pin_provider_hook(struct ibv_context *context);
