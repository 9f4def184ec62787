#!/bin/sh
# SPDX-License-Identifier: MulanPSL-2.0
#
# msmemscope [options] -- program …           records a program
# source msmemscope --load-api-env            puts our libraries into this shell's environment
# source msmemscope --unload-api-env          takes them out again
#
# When sourced this runs inside the user's own shell, perhaps with `set -eu`: no exit, no exec, no
# word splitting (zsh has none), every name begins with _msmemscope and is removed at the end.

# The path of this file; empty when the shell has no way to tell. BASH_SOURCE and the zsh form are
# hidden in eval because other shells cannot parse them.
_msmemscope_self=$0
_msmemscope_sourced=no
if [ -n "${BASH_VERSION:-}" ]; then
	eval '_msmemscope_self=${BASH_SOURCE[0]}'
	[ "$_msmemscope_self" = "$0" ] || _msmemscope_sourced=yes
elif [ -n "${ZSH_VERSION:-}" ]; then
	eval '_msmemscope_self=${(%):-%x}'
	case ${ZSH_EVAL_CONTEXT:-} in *:file*) _msmemscope_sourced=yes ;; esac
elif [ "${0##*/}" != msmemscope ] && [ ! -x "$(dirname -- "$(readlink -f -- "$0")")/sonde" ]; then
	# Sourced by a shell that cannot tell where this file is.
	echo "[msmemscope] Error: this shell cannot source msmemscope; use bash or zsh" >&2
	return 1
fi

# Without a child process where it can be: a job that has SIGCHLD blocked would find one pending.
case $_msmemscope_self in
/*) _msmemscope_dir=${_msmemscope_self%/*} ;;
*) _msmemscope_dir= ;;
esac
if [ -z "$_msmemscope_dir" ] || [ -L "$_msmemscope_self" ]; then
	_msmemscope_dir=$(dirname -- "$(readlink -f -- "$_msmemscope_self")")
fi

_msmemscope_say() {
	printf '[msmemscope] %s: %s\n' "$1" "$2"
}

# The directory of the libraries, beside our bin.
_msmemscope_find_lib() {
	for _msmemscope_lib in "${_msmemscope_dir%/*}/lib" "${_msmemscope_dir%/*}/lib64"; do
		if [ -e "$_msmemscope_lib/libascend_kernel_hook.so" ]; then
			return 0
		fi
	done
	_msmemscope_say Error "cannot find the libraries in lib or lib64 of '${_msmemscope_dir%/*}'" >&2
	return 1
}

# Whether the list $1 has the entry $2; the loader splits at colons and, for LD_PRELOAD, at spaces.
_msmemscope_has() {
	case ":$1:" in
	*[:\ ]"$2"[:\ ]*) return 0 ;;
	esac
	return 1
}

# Leaves in _msmemscope_out the colon-separated list $1 without the entries that are $2 or lie
# directly in the directory $2.
_msmemscope_without() {
	_msmemscope_rest=$1
	_msmemscope_out=
	while [ -n "$_msmemscope_rest" ]; do
		_msmemscope_entry=${_msmemscope_rest%%[: ]*}
		if [ "$_msmemscope_entry" = "$_msmemscope_rest" ]; then
			_msmemscope_rest=
		else
			_msmemscope_rest=${_msmemscope_rest#*[: ]}
		fi
		case "$_msmemscope_entry" in
		'' | "$2" | "$2"/*) ;;
		*) _msmemscope_out=${_msmemscope_out:+$_msmemscope_out:}$_msmemscope_entry ;;
		esac
	done
}

# Like it for LD_LIBRARY_PATH: only the entry itself, and spaces are part of a name.
_msmemscope_without_dir() {
	_msmemscope_rest=$1:
	_msmemscope_out=
	while [ -n "$_msmemscope_rest" ]; do
		_msmemscope_entry=${_msmemscope_rest%%:*}
		_msmemscope_rest=${_msmemscope_rest#*:}
		case "$_msmemscope_entry" in
		'' | "$2" | "$2/") ;;
		*) _msmemscope_out=${_msmemscope_out:+$_msmemscope_out:}$_msmemscope_entry ;;
		esac
	done
}

_msmemscope_load() {
	_msmemscope_find_lib || return 1
	case "$_msmemscope_lib" in
	*[:\ ]*)
		_msmemscope_say Error \
			"cannot preload from '$_msmemscope_lib': the path has a colon or a space" >&2
		return 1
		;;
	esac
	# The environment changes last: any program started before would already be a guest.
	_msmemscope_list=${LD_PRELOAD:-}
	for _msmemscope_name in libleaks_ascend_hal_hook.so libascend_mstx_hook.so \
		libascend_kernel_hook.so libatb_abi_0_hook.so libatb_abi_1_hook.so \
		libsonde_cuda_hook.so; do
		_msmemscope_entry=$_msmemscope_lib/$_msmemscope_name
		if [ ! -e "$_msmemscope_entry" ]; then
			_msmemscope_say Warn "'$_msmemscope_entry' does not exist and is left out" >&2
		elif ! _msmemscope_has "$_msmemscope_list" "$_msmemscope_entry"; then
			_msmemscope_list=$_msmemscope_entry${_msmemscope_list:+:$_msmemscope_list}
		fi
	done
	case ":${LD_LIBRARY_PATH:-}:" in
	*":$_msmemscope_lib:"*) ;;
	*) export LD_LIBRARY_PATH="$_msmemscope_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
	esac
	# ASan ends programs before which another library is preloaded, unless it is told not to.
	case ${ASAN_OPTIONS:-} in
	*verify_asan_link_order*) ;;
	*)
		export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"
		export MSMEMSCOPE_SET_ASAN=1
		;;
	esac
	export MSMEMSCOPE_LIB_PATH="$_msmemscope_lib"
	export LD_PRELOAD="$_msmemscope_list"
	_msmemscope_say Info "loaded into LD_PRELOAD and LD_LIBRARY_PATH of this shell"
}

_msmemscope_unload() {
	# What was loaded, even if this file has moved since.
	if [ -n "${MSMEMSCOPE_LIB_PATH:-}" ]; then
		_msmemscope_lib=$MSMEMSCOPE_LIB_PATH
	else
		_msmemscope_find_lib || return 1
	fi
	_msmemscope_without "${LD_PRELOAD:-}" "$_msmemscope_lib"
	if [ -n "$_msmemscope_out" ]; then
		export LD_PRELOAD="$_msmemscope_out"
	else
		unset LD_PRELOAD
	fi
	_msmemscope_without_dir "${LD_LIBRARY_PATH:-}" "$_msmemscope_lib"
	if [ -n "$_msmemscope_out" ]; then
		export LD_LIBRARY_PATH="$_msmemscope_out"
	else
		unset LD_LIBRARY_PATH
	fi
	if [ -n "${MSMEMSCOPE_SET_ASAN:-}" ]; then
		ASAN_OPTIONS=${ASAN_OPTIONS%verify_asan_link_order=0}
		ASAN_OPTIONS=${ASAN_OPTIONS%:}
		[ -n "$ASAN_OPTIONS" ] || unset ASAN_OPTIONS
	fi
	unset MSMEMSCOPE_LIB_PATH MSMEMSCOPE_SET_ASAN
	_msmemscope_say Info "removed from LD_PRELOAD and LD_LIBRARY_PATH of this shell"
}

_msmemscope_main() {
	case "$_msmemscope_sourced:${1:-}" in
	yes:--load-api-env) _msmemscope_load ;;
	yes:--unload-api-env) _msmemscope_unload ;;
	no:--load-api-env | no:--unload-api-env)
		_msmemscope_say Error "$1 must be sourced: source msmemscope $1" >&2
		return 1
		;;
	no:*) exec "$_msmemscope_dir/sonde" msmemscope "$@" ;;
	*) "$_msmemscope_dir/sonde" msmemscope "$@" ;;
	esac
}

_msmemscope_status=0
_msmemscope_main "$@" || _msmemscope_status=$?

unset -f _msmemscope_say _msmemscope_find_lib _msmemscope_has _msmemscope_without \
	_msmemscope_without_dir _msmemscope_load _msmemscope_unload _msmemscope_main
unset _msmemscope_self _msmemscope_sourced _msmemscope_dir _msmemscope_lib _msmemscope_rest \
	_msmemscope_out _msmemscope_entry _msmemscope_list _msmemscope_name
# The last command's status is what `source` gives back; a variable would have to stay behind.
eval "unset _msmemscope_status; (exit $_msmemscope_status)"
