package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) manual() manual {
	return manual{
		synopsis: "bash|zsh|fish",
		description: `Prints a script that completes the commands and flags of quorumlock in your
shell.`,
		statuses: "0  all is well\n2  the command line is wrong",
		examples: `source <(quorumlock completion bash)      # in ~/.bashrc
source <(quorumlock completion zsh)       # in ~/.zshrc, behind compinit
quorumlock completion fish >~/.config/fish/completions/quorumlock.fish`,
	}
}

func (c *completionCommand) Run(e *env, program *kong.Node) error {
	script := bashCompletion
	switch c.Shell {
	case "zsh":
		script = func(program *kong.Node) string {
			return "autoload -U +X bashcompinit && bashcompinit\n" + bashCompletion(program)
		}
	case "fish":
		script = fishCompletion
	}
	_, err := fmt.Fprint(e.text, script(program))
	return err
}

// filesAreFor reports whether the value of a flag is the name of a file.
func filesAreFor(f *kong.Flag) bool { return f.PlaceHolder == "FILE" }

func bashCompletion(program *kong.Node) string {
	var names, cases, files []string
	for _, c := range program.Children {
		names = append(names, c.Name)
		words := []string{"--help"}
		for _, f := range c.Flags {
			words = append(words, "--"+f.Name)
			if name := "--" + f.Name; filesAreFor(f) && !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
		for _, p := range c.Positional {
			for v := range strings.SplitSeq(p.Enum, ",") {
				if v != "" {
					words = append(words, v)
				}
			}
		}
		cases = append(cases, fmt.Sprintf("    %s) words='%s' ;;", c.Name, strings.Join(words, " ")))
	}
	names = append(names, "help")
	return fmt.Sprintf(`_quorumlock() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      COMPREPLY=($(compgen -c -f -- "$cur"))
      return
    fi
  done
  case $prev in
    %s) COMPREPLY=($(compgen -f -- "$cur")); return ;;
  esac
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '%s' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    help) words='%s' ;;
%s
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _quorumlock quorumlock
`, strings.Join(files, "|"), strings.Join(names, " "), strings.Join(names, " "), strings.Join(cases, "\n"))
}

func fishCompletion(program *kong.Node) string {
	var b strings.Builder
	quote := func(s string) string {
		return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", `\'`) + "'"
	}
	b.WriteString("complete -c quorumlock -f\n")
	for _, c := range program.Children {
		fmt.Fprintf(&b, "complete -c quorumlock -n __fish_use_subcommand -a %s -d %s\n", c.Name, quote(c.Help))
		seen := quote("__fish_seen_subcommand_from " + c.Name)
		for _, f := range c.Flags {
			fmt.Fprintf(&b, "complete -c quorumlock -n %s -l %s -d %s", seen, f.Name, quote(f.Help))
			switch {
			case filesAreFor(f):
				b.WriteString(" -r -F")
			case !f.IsBool():
				b.WriteString(" -x")
			}
			b.WriteByte('\n')
		}
		for _, p := range c.Positional {
			if p.Enum != "" {
				fmt.Fprintf(&b, "complete -c quorumlock -n %s -a %s\n", seen, quote(strings.ReplaceAll(p.Enum, ",", " ")))
			}
		}
	}
	return b.String()
}
