# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for other libraries: their names, arguments and results over quern."""
