# SPDX-License-Identifier: Apache-2.0
# For sed -E: removes from PTX what the driver passes over, a quarter of it: clang's comments, indentation, blanks and
# empty lines. Remarks for runtime/image/ptx.c stay.
\,^[[:blank:]]*// quern:, b
s,[[:blank:]]*//.*,,
s,^[[:blank:]]+,,
s/[[:blank:]]+/ /g
s/, /,/g
/^$/ d
