# fish completion for svc
function __svc_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l directive 4
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        if string match -q -r '^:' -- $line
            set directive (string sub -s 2 -- $line)
        else
            echo $line
        end
    end
    if test "$directive" = 0
        __fish_complete_path (commandline -ct)
    end
end
complete -c svc -f -a '(__svc_complete)'
