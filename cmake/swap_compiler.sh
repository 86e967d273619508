#!/bin/sh
# A compiler launcher: swap_compiler.sh NEW [CCACHE] OLD ARGS... runs [CCACHE] NEW ARGS...
new=$1
shift
case $1 in
  *ccache) cache=$1; shift 2; exec "$cache" "$new" "$@" ;;
  *) shift; exec "$new" "$@" ;;
esac
