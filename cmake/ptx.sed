# SPDX-License-Identifier: Apache-2.0
# For sed -E: PTX without what the driver passes over, a quarter of it: clang's comments, indentation, blanks and empty
# lines. Remarks for runtime/ptx.c stay.
\,^[[:blank:]]*// quern:, b
s,[[:blank:]]*//.*,,
s,^[[:blank:]]+,,
s/[[:blank:]]+/ /g
s/, /,/g
/^$/ d
