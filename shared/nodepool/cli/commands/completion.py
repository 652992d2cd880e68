"""`nodepool completion`: the scripts that let a shell complete words."""

import click

from nodepool.cli.errors import DONE
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command

COMPLETE = "__complete"
"""The hidden command that the scripts run: it prints one candidate per line, or `:files`."""

# The script passes the whole line, because bash also splits words at '=' and ':'. A candidate
# replaces only the text after the last '=' or ':', so the script cuts off the part before it.
BASH = """\
_nodepool_complete() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" word="${COMP_WORDS[COMP_CWORD]}" head item
    COMPREPLY=()
    [[ "$word" == "=" || "$word" == ":" ]] && word=""
    head="${line##*[[:space:]]}"
    head="${head%"$word"}"
    for item in $(nodepool __complete --line "$line" 2>/dev/null); do
        if [[ "$item" == ":files" ]]; then
            compopt -o default 2>/dev/null
            COMPREPLY=()
            return 0
        fi
        [[ "$head" == *[=:] ]] && item="${item#"$head"}"
        [[ "$item" == *[=/.] ]] && compopt -o nospace 2>/dev/null
        COMPREPLY+=("$item")
    done
}
complete -F _nodepool_complete nodepool
"""
ZSH = """\
#compdef nodepool
_nodepool_complete() {
    local -a items spaced
    items=("${(@f)$(nodepool __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${items[1]}" == ":files" ]]; then
        [[ "$PREFIX" == -*=* ]] && compset -P '*='
        _files
        return
    fi
    spaced=(${items:#*[=/.]})
    items=(${(M)items:#*[=/.]})
    (( $#spaced )) && compadd -- $spaced
    (( $#items )) && compadd -S '' -- $items
    return 0
}
if (( ! $+functions[compdef] )); then
    autoload -Uz compinit && compinit
fi
compdef _nodepool_complete nodepool
"""
FISH = """\
function __nodepool_complete
    set -l words (commandline -opc) (commandline -ct)
    for item in (nodepool __complete -- $words[2..-1] 2>/dev/null)
        if test "$item" = ":files"
            set -l token (commandline -ct)
            set -l flag (string match -r -- '^-[^=]*=' $token)
            for file in (__fish_complete_path (string replace -r -- '^-[^=]*=' '' $token))
                echo -- "$flag$file"
            end
        else
            echo -- $item
        end
    end
end
complete -c nodepool -f -a '(__nodepool_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def completion(shell: str) -> int:
    """Print a shell completion script.

    \b
    To load it, run one of:
      eval "$(nodepool completion bash)"
      eval "$(nodepool completion zsh)"
      nodepool completion fish | source
    """
    print_text(SCRIPTS[shell].rstrip("\n"))
    return DONE


@click.command(COMPLETE, hidden=True, context_settings={"ignore_unknown_options": True})
@click.option("--line")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def complete(context: click.Context, line: str | None, words: tuple[str, ...]) -> int:
    """Print what may stand where the last word begins."""
    from click.shell_completion import split_arg_string

    from nodepool.cli.completion import completions

    if line is not None:
        words = tuple(split_arg_string(line)[1:])
        if not line or line[-1].isspace():
            words = (*words, "")
    *before, word = words or ("",)
    print_text("\n".join(completions(context.find_root().command, before, word)))
    return DONE
