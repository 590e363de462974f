# SPDX-License-Identifier: GPL-2.0-only
# The newest clang, as script/setup finds it; empty when there is none of 16 or newer.
CLANG := $(firstword $(foreach n,25 24 23 22 21 20 19 18 17 16,$(shell command -v clang-$n)) \
	$(shell command -v clang))
