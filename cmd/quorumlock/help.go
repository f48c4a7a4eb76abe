package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

const helpWidth = 78 // columns

// statuses is the common part of the exit statuses of most commands.
const statuses = `0    all is well
1    it failed
2    the command line is wrong
122  no quorum: too few nodes answered
130  interrupted`

// environment is the common part of the environment of commands with nodes.
const environment = `QUORUMLOCK_NODES         the nodes, if neither --nodes nor --nodes-file is given
QUORUMLOCK_NODES_FILE    the file of the nodes, if none of these is given
QUORUMLOCK_QUORUM, QUORUMLOCK_PREFIX, QUORUMLOCK_RESTART_GUARD, QUORUMLOCK_NODE_TIMEOUT,
QUORUMLOCK_TLS_CA        the defaults of --quorum and so on
QUORUMLOCK_FILE          a file with lines NAME=value that set these variables`

// manual is the help of a command, without its flags.
type manual struct {
	synopsis    string // follows the name of the program
	description string // paragraphs
	environment string // preformatted lines
	statuses    string // preformatted lines
	examples    string // preformatted lines
}

// documented is a command that has a manual.
type documented interface{ manual() manual }

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

// find returns the command of that name, or nil.
func find(program *kong.Node, name string) *kong.Node {
	for _, c := range program.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// overview lists the commands.
func overview(program *kong.Node) string {
	var b strings.Builder
	for _, c := range program.Children {
		fmt.Fprintf(&b, "  %-10s  %s\n", c.Name, c.Help)
	}
	fmt.Fprintf(&b, "  %-10s  %s\n", "help", "Print this, or the manual of a command.")
	return b.String()
}

// help prints the manual of the command in args, or the list of commands.
func help(w io.Writer, program *kong.Node, args []string) error {
	if len(args) == 0 {
		_, err := fmt.Fprintf(w, "Distributed locks over independent Redis nodes.\n\nUsage: quorumlock <command> [flags]\n\n%s\nThe manual of a command: quorumlock help <command>\n", overview(program))
		return err
	}
	command := find(program, args[0])
	if command == nil {
		return usageError("help: " + unknown(program, args[0]))
	}
	_, err := io.WriteString(w, page(command))
	return err
}

// page returns the manual of a command, with the headings of a man page.
func page(command *kong.Node) string {
	var m manual
	if d, ok := command.Target.Addr().Interface().(documented); ok {
		m = d.manual()
	}
	var b strings.Builder
	section := func(title, text string) {
		if text == "" {
			return
		}
		fmt.Fprintf(&b, "%s\n", title)
		for line := range strings.Lines(text) {
			b.WriteString(strings.TrimRight("       "+line, " \n") + "\n")
		}
		b.WriteString("\n")
	}
	summary := strings.TrimSuffix(command.Help, ".")
	section("NAME", "quorumlock "+command.Name+" - "+strings.ToLower(summary[:1])+summary[1:])
	section("SYNOPSIS", "quorumlock "+command.Name+" "+m.synopsis)
	section("DESCRIPTION", paragraphs(m.description))
	section("OPTIONS", flagsOf(command))
	section("ENVIRONMENT", m.environment)
	section("EXIT STATUS", m.statuses)
	section("EXAMPLES", m.examples)
	return strings.TrimSuffix(b.String(), "\n")
}

func paragraphs(text string) string {
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range parts {
		parts[i] = wrap(p, helpWidth-7)
	}
	return strings.Join(parts, "\n\n")
}

// flagsOf describes the flags of a command.
func flagsOf(command *kong.Node) string {
	var b strings.Builder
	for _, f := range command.Flags {
		if f.Hidden {
			continue
		}
		name := "--" + f.Name
		if f.Short != 0 {
			name = "-" + string(f.Short) + ", " + name
		}
		if !f.IsBool() {
			name += " " + placeholder(f)
		}
		text := f.Help
		if f.HasDefault {
			text += " Default: " + f.Default + "."
		}
		b.WriteString(name + "\n")
		for line := range strings.Lines(wrap(text, helpWidth-14)) {
			b.WriteString("       " + line)
		}
		b.WriteString("\n\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func placeholder(f *kong.Flag) string {
	if f.PlaceHolder != "" {
		return f.PlaceHolder
	}
	return strings.ToUpper(f.Name)
}

// wrap wraps a paragraph at width columns.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
