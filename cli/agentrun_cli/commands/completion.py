"""agentrun completion: the script that lets a shell complete our commands, jobs and items."""

from __future__ import annotations

from typing import Annotated

import typer

# Each hands the line up to the cursor to `agentrun` itself, and shows what that prints; see `completing`.
# What ends with / or : is not a whole word yet, so no space follows it; fish knows that by itself.
BASH = r"""_agentrun() {
    local line reply=()
    while IFS= read -r line; do reply+=("$line"); done < <(
        _AGENTRUN_COMPLETE=bash COMP_LINE="${COMP_LINE:0:COMP_POINT}" "${COMP_WORDS[0]}" 2>/dev/null)
    [ "${reply[0]-}" = :files ] && { compopt -o default; COMPREPLY=(); return; }
    [[ ${reply[0]-} == *[/:] && ${#reply[@]} -eq 1 ]] && compopt -o nospace
    COMPREPLY=("${reply[@]}")
}
complete -F _agentrun agentrun"""
ZSH = r"""#compdef agentrun
_agentrun() {
    local -a reply
    reply=("${(@f)$(_AGENTRUN_COMPLETE=zsh COMP_LINE="${(j: :)words[1,CURRENT]}" ${words[1]} 2>/dev/null)}")
    if [[ ${reply[1]} == :files ]]; then _files; return; fi
    reply=("${(@)reply:#}")
    compadd -S '' -- "${(@M)reply:#*[/:]}"
    compadd -- "${(@)reply:#*[/:]}"
}
if [[ $funcstack[1] == _agentrun ]]; then _agentrun "$@"; else compdef _agentrun agentrun; fi"""
FISH = r"""function __agentrun
    set -l reply (_AGENTRUN_COMPLETE=fish COMP_LINE=(commandline -cp | string collect) agentrun 2>/dev/null)
    if test "$reply[1]" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $reply
    end
end
complete -c agentrun -f -a '(__agentrun)'"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes commands, jobs and items with Tab.

    \b
    eval "$(agentrun completion bash)"       in ~/.bashrc
    eval "$(agentrun completion zsh)"        in ~/.zshrc, after compinit
    agentrun completion fish | source        in ~/.config/fish/config.fish
    """
    from agentrun.errors import UsageError
    from agentrun_cli.terminal import put

    if shell not in SCRIPTS:
        raise UsageError(f"{shell}: no completion for this shell; give bash, zsh or fish")
    put(SCRIPTS[shell])
