package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/wire"
)

type aclCommand struct {
	User         string   `default:"locker" placeholder:"NAME" help:"The user."`
	Prefix       string   `placeholder:"TEXT" help:"The prefix of every name: WithPrefix of the clients. Default: the user may lock every name."`
	RestartGuard bool     `help:"The clients use WithRestartGuard."`
	Also         []string `enum:"check,list,database" placeholder:"WORD,WORD,..." help:"check: the user may run quorumlock check and Diagnose. list: quorumlock list, top and serve. database: URLs with a database other than 0."`
	Server       string   `enum:"7.2,7.0,6.2,6.0" default:"7.2" placeholder:"VERSION" help:"The oldest version of Redis that must know the rules: 7.2 (also for Valkey), 7.0, 6.2 or 6.0."`
	PasswordFile string   `placeholder:"FILE" help:"The password is the first line of this file, or of stdin if the file is -. The output has its SHA-256."`
}

func (aclCommand) manual() manual {
	return manual{
		synopsis: "[--user NAME] [--prefix TEXT] [--restart-guard] [--also WORD,...] [--server VERSION] [--password-file FILE]",
		description: `Prints a line for the servers' ACL file (users.acl), with the least rights that a
client needs. It asks no node. For a running server, write ACL SETUSER in place of the first word,
and quote the words.

With --prefix, the client's label must begin with the user's name and a dot, as in
WithLabel("NAME.host"). No prefix may be the beginning of another, even without a
{ in front.

Without --password-file, the servers refuse the line until you put in the SHA-256 of a password.
Choose a long random password: the SHA-256 of a short one is soon guessed.`,
		statuses: "0  all is well\n1  the output could not be written\n2  the command line is wrong",
		examples: "quorumlock acl --user billing --prefix billing: --password-file billing.txt >>users.acl\nopenssl rand -hex 32 | tee billing.txt | quorumlock acl --password-file - >users.acl",
	}
}

func (c *aclCommand) Run(e *env) error {
	if c.User == "" || strings.Contains(c.User, ".") || !settings.IsLabel(c.User+".") {
		return usageError(fmt.Sprintf("acl: --user %.80q: use 1 to %d letters, digits, underscores and hyphens", c.User, settings.MaxLabel-1))
	}
	if err := settings.CheckPrefix(c.Prefix); err != nil {
		return usageError("acl: --prefix: " + err.Error())
	}
	if !utf8.ValidString(c.Prefix) || strings.ContainsFunc(c.Prefix, func(r rune) bool { return !isSafe(r) }) {
		return usageError(fmt.Sprintf("acl: --prefix %.80q has characters that a terminal does not show: use others", c.Prefix))
	}
	hash := "#SHA-256-OF-THE-PASSWORD" // servers refuse it
	if c.PasswordFile != "" {
		password, err := c.password(e.stdin)
		if err != nil {
			return usageError("acl: " + err.Error())
		}
		hash = fmt.Sprintf("#%x", sha256.Sum256([]byte(password)))
	}
	_, err := fmt.Fprintln(e.text, "user", c.User, "reset on", hash, strings.Join(c.rules(), " "))
	return err
}

func (c *aclCommand) password(stdin io.Reader) (string, error) {
	if c.PasswordFile != "-" {
		return passwordIn(c.PasswordFile)
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return "", fmt.Errorf("--password-file: stdin: %w", err)
	}
	return firstLine("stdin", text)
}

// rules returns the rules of the user without its password.
func (c *aclCommand) rules() []string {
	label := ""
	if c.Prefix != "" {
		label = c.User + "."
	}
	rules := wire.ACL(c.Prefix, label)
	if c.RestartGuard && c.Prefix != "" {
		rules = slices.Insert(rules, 1, "~quorumlock_age")
	}
	also := map[string][]string{"check": {"+config|get", "+client|list"}, "list": {"+scan"}, "database": {"+select"}}
	for _, word := range c.Also {
		rules = append(rules, also[word]...)
	}
	if c.Server == "7.0" {
		rules = slices.DeleteFunc(rules, func(r string) bool { return r == "+client|setinfo" })
	}
	if c.Server < "7" {
		rules = append(rules, "+hello")
	}
	if c.Server == "6.0" {
		rules = slices.DeleteFunc(rules, func(r string) bool { return r == "resetchannels" || strings.HasPrefix(r, "&") })
	}
	return rules
}

// passwordIn returns the first line of the file of --password-file.
func passwordIn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	return firstLine(file, text)
}

// firstLine returns the password in a text of --password-file.
func firstLine(file string, text []byte) (string, error) {
	p, _, _ := strings.Cut(string(text), "\n")
	if p = strings.TrimSuffix(p, "\r"); len(p) < minPassword {
		return "", fmt.Errorf("--password-file: the first line of %s has %d bytes: use at least %d", file, len(p), minPassword)
	}
	return p, nil
}
