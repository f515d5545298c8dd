# bash completion for svc
__svc_complete() {
    local IFS=$'\n' line words=("${COMP_WORDS[@]:1:COMP_CWORD}") directive=4
    COMPREPLY=()
    # bash splits at "=" and ":"; the words are put together again.
    local joined=() word
    for word in "${words[@]}"; do
        if [[ ${#joined[@]} -gt 0 && ( $word == [=:]* || ${joined[${#joined[@]}-1]} == *[=:] ) ]]; then
            joined[${#joined[@]}-1]+=$word
        else
            joined+=("$word")
        fi
    done
    [[ ${#joined[@]} -gt 0 ]] || joined=("")
    local typed=${joined[${#joined[@]}-1]} current=${COMP_WORDS[COMP_CWORD]}
    for line in $("${COMP_WORDS[0]}" __complete "${joined[@]}" 2>/dev/null); do
        case $line in
            :*) directive=${line#:} ;;
            *) line=${line%%$'\t'*}; [[ $line == "$typed"* ]] && COMPREPLY+=("$line") ;;
        esac
    done
    # What is before the last split is not part of the word that bash replaces.
    local prefix=${typed%"${current#[=:]}"} i
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$prefix"}; done
    if [[ ${#COMPREPLY[@]} -eq 0 && $directive -eq 0 ]]; then
        COMPREPLY=($(compgen -f -- "${current#[=:]}"))
        compopt -o filenames 2>/dev/null
    fi
}
complete -F __svc_complete svc
