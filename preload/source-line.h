/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the library and its command find the line of an address. Who includes this defines
 * LIBDW(function), where libdw's functions are.
 */
#ifndef PIN_SOURCE_LINE_H
#define PIN_SOURCE_LINE_H

#include <elfutils/libdwfl.h>

/*
 * The compilation unit of an address, and what to subtract from the address in it. Units are
 * found by .debug_aranges, but clang does not write that: then they are asked one by one.
 */
static inline Dwarf_Die *pin_unit_of(Dwfl_Module *module, Dwarf_Addr code, Dwarf_Addr *bias)
{
	Dwarf_Die *unit = LIBDW(dwfl_module_addrdie)(module, code, bias);

	if (unit)
		return unit;
	while ((unit = LIBDW(dwfl_module_nextcu)(module, unit, bias)))
		if (LIBDW(dwarf_haspc)(unit, code - *bias) > 0)
			return unit;
	return NULL;
}

/* The source file, or NULL, and the line. */
static inline const char *pin_source_line(Dwfl_Module *module, Dwarf_Addr code, int *number)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = pin_unit_of(module, code, &bias);
	Dwarf_Line *line = unit ? LIBDW(dwarf_getsrc_die)(unit, code - bias) : NULL;

	if (!line || LIBDW(dwarf_lineno)(line, number))
		return NULL;
	return LIBDW(dwarf_linesrc)(line, NULL, NULL);
}

#endif
