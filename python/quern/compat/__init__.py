# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for other libraries: the same names, arguments and results over quern."""
