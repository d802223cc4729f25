# bash completion for mooncaf. It asks the program, so it knows the options of the version that is installed.
_mooncaf() {
  local program=$1 current=$2 previous=$3 at=1 known values
  local -a command=()
  COMPREPLY=()
  known=$("$program" --help=words 2>/dev/null) || return 0
  # Further words are commands as long as the program says so; they never run anything, as --help follows.
  while ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} != -* ]] && grep -qxF -- "${COMP_WORDS[at]}" <<<"$known"; do
    command+=("${COMP_WORDS[at]}")
    known=$("$program" "${command[@]}" --help=words 2>/dev/null) || return 0
    at=$((at + 1))
  done
  if [[ $previous == --* ]]; then
    values=$(awk -F '\t' -v option="$previous" '$1 == option { print $2 }' <<<"$known")
    case $values in
      *'|'*) mapfile -t COMPREPLY < <(compgen -W "${values//|/ }" -- "$current"); return 0 ;;
      *FILE* | *DIR* | *PATH* | MODEL) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return 0 ;;
      ?*) return 0 ;;  # a number, a size, an address: nothing to choose from
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$(cut -f1 <<<"$known")" -- "$current")
  ((${#COMPREPLY[@]} > 0)) || { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current"); }
}
complete -F _mooncaf mooncaf
