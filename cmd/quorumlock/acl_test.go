package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// rule returns the words that acl prints.
func rule(t *testing.T, args ...string) []string {
	t.Helper()
	o := invoke(t, append([]string{"acl"}, args...)...)
	if o.status != 0 || strings.Count(o.stdout, "\n") != 1 {
		t.Errorf("acl %q: status %d, %s\n%s", args, o.status, o.stdout, o.stderr)
	}
	return strings.Fields(o.stdout)
}

// Each rule in docs/security.md is what the command above it prints. The second one leaves out the
// commands, which are those of the first.
func TestDocsHaveTheRulesOfTheCommand(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	testkit.Must(t, err, "ReadFile")
	blocks := regexp.MustCompile("(?ms)^quorumlock acl(.*?)\n(user .*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d rules", len(blocks))
	}
	for _, b := range blocks {
		want := rule(t, strings.Fields(b[1])...)
		if !strings.Contains(b[2], "+") {
			want = slices.DeleteFunc(want, func(word string) bool { return word[0] == '+' })
		}
		if got := strings.Fields(b[2]); !slices.Equal(got, want) {
			t.Errorf("the page has\n%s\nand acl%s prints\n%s", got, b[1], want)
		}
	}
}

func TestACLAddsWhatItsFlagsName(t *testing.T) {
	least := rule(t)
	tenant := rule(t, "--prefix", "a:")
	for _, test := range []struct {
		args            []string
		from            []string
		gone, come      string
		withoutChannels bool
	}{
		{args: []string{"--restart-guard"}, from: least},
		{args: []string{"--prefix", "a:", "--restart-guard"}, from: tenant, come: "~quorumlock_age"},
		{args: []string{"--also", "check"}, from: least, come: "+config|get +client|list"},
		{args: []string{"--also", "database,list"}, from: least, come: "+select +scan"},
		{args: []string{"--server", "7.0"}, from: least, gone: "+client|setinfo"},
		{args: []string{"--server", "6.2"}, from: least, come: "+hello"},
		{args: []string{"--server", "6.0"}, from: least, come: "+hello", gone: "resetchannels", withoutChannels: true},
	} {
		want := slices.DeleteFunc(slices.Clone(test.from), func(word string) bool {
			return word == test.gone || test.withoutChannels && word[0] == '&'
		})
		want = append(want, strings.Fields(test.come)...)
		got := rule(t, test.args...)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("acl %q prints\n%s\nand not\n%s", test.args, got, want)
		}
	}
}

// The rule has the hash of the password, which comes from a file or from stdin, never from the
// command line.
func TestACLHasTheHashOfThePassword(t *testing.T) {
	const secret = "s3cret-and-long"
	want := fmt.Sprintf("#%x", sha256.Sum256([]byte(secret)))
	file := filepath.Join(t.TempDir(), "password")
	testkit.Must(t, os.WriteFile(file, []byte(secret+"\r\nnote\n"), 0o600), "WriteFile")
	if got := rule(t, "--password-file", file); !slices.Contains(got, want) {
		t.Errorf("the rule of a file is %q", got)
	}
	var stdout, stderr strings.Builder
	status := run(t.Context(), []string{"acl", "--password-file", "-"}, strings.NewReader(secret+"\n"), &stdout, &stderr)
	if status != 0 || !strings.Contains(stdout.String(), want) {
		t.Errorf("status %d, %s%s", status, &stdout, &stderr)
	}
	noSecret(t, stdout.String()+stderr.String())
	testkit.Must(t, os.WriteFile(file, []byte("s3cret\n"), 0o600), "WriteFile")
	o := invoke(t, "acl", "--password-file", file)
	testkit.Equal(t, o.status, exitUsage, "status")
	has(t, o.stderr, "the first line of "+file+" has 6 bytes: use at least 8")
	if got := rule(t); !slices.Contains(got, "#SHA-256-OF-THE-PASSWORD") {
		t.Errorf("without a password: %q", got)
	}
}
