/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A shared library whose constructor calls the program's function while_loading().
 */
extern void while_loading(void);

__attribute__((constructor)) static void load(void)
{
	while_loading();
}
