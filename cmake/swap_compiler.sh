#!/bin/sh
# A compiler launcher: swap_compiler.sh NEW OLD [LAUNCHER...] OLD ARGS... runs [LAUNCHER...] NEW ARGS...
new=$1 old=$2
shift 2
for word; do
  shift
  [ "$word" = "$old" ] && word=$new old=
  set -- "$@" "$word"
done
exec "$@"
