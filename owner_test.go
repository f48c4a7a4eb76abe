package quorumlock_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestEveryIDIsARandomUUIDOfItsOwn(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for range 2000 {
		owner, number, _ := strings.Cut(string(quorumlock.NewOwner()), ":")
		if number != "1" {
			t.Fatalf("the number of a new owner is %q, want 1", number)
		}
		for _, id := range []string{settings.NewID(), owner} {
			if !uuid.MatchString(id) {
				t.Fatalf("%q is no UUID of version 4", id)
			}
			if seen[id] {
				t.Fatalf("%q was given twice", id)
			}
			seen[id] = true
		}
	}
}

func TestNobodyHoldsAStateWithoutOwner(t *testing.T) {
	testkit.Equal(t, quorumlock.State{Token: 7}.Held(), false, "without an owner")
	testkit.Equal(t, quorumlock.State{Owner: "x"}.Held(), true, "with an owner")
}

func TestValidateTakesOwnersOfTheGrammarOnly(t *testing.T) {
	const fix = "quorumlock.NewOwner"
	for _, tt := range []struct {
		name  string
		owner quorumlock.Owner
		want  []string // parts of the error; empty if the owner is valid
	}{
		{"a new one", quorumlock.NewOwner(), nil},
		{"this library's", labelled, nil},
		{"Redisson's", "6f1c2b3a-0000-4000-8000-000000000000:52", nil},
		{"the shortest", "a:1", nil},
		{"several colons", "a:b:1", nil},
		{"any printable character", "!\"#$%&'()+,-.0;<=>?@[\\]^_`{|}~:0", nil},
		{"the longest", quorumlock.Owner(strings.Repeat("a", 198) + ":1"), nil},
		{"too long", quorumlock.Owner(strings.Repeat("a", 199) + ":1"), []string{"201 bytes", "at most 200", fix}},
		{"empty", "", []string{"the owner is empty", fix}},
		{"an asterisk", "*:1", []string{"'*'", "without spaces, * and /", fix}},
		{"a space", "a b:1", []string{"' '", "printable ASCII", fix}},
		{"a line feed", "a:1\n", []string{`'\n'`, "printable ASCII", fix}},
		{"a delete", "a\x7f:1", []string{`'\x7f'`, "printable ASCII", fix}},
		{"another alphabet", "é:1", []string{"printable ASCII", fix}},
		{"no number", "a", []string{`"a"`, "<client>:<n>", fix}},
		{"an empty number", "a:", []string{"<client>:<n>", fix}},
		{"a number with a sign", "a:-1", []string{"<client>:<n>", fix}},
		{"a number in hexadecimal", "a:0x1", []string{"<client>:<n>", fix}},
		{"no client", ":1", []string{"<client>:<n>", fix}},
		{"an attempt", "a:1/2", []string{"'/'", fix}},
		{"a cell", "a:1.2", []string{"<client>:<n>", fix}},
		{"an attempt and a cell", "a:1/2.3", []string{"'/'", fix}},
		{"a writer of Redisson's", "a:1:write", []string{"<client>:<n>", fix}},
	} {
		err := tt.owner.Validate()
		if (err != nil) != (len(tt.want) > 0) || err != nil && !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: %q does not say %q", tt.name, err, want)
			}
		}
	}
}

func TestOwnerIsShownAndLoggedWhole(t *testing.T) {
	for _, tt := range []struct{ owner, label string }{
		{"web-1~uuid:7", "web-1"},
		{"web-1~uuid:7/3", "web-1"},
		{"web-1~uuid:7/3.4", "web-1"},
		{"web-1~a~b:7", "web-1"},
		{"uuid:7", ""},
		{"~uuid:7", ""},
		{"web 1~uuid:7", ""},
		{strings.Repeat("l", 65) + "~uuid:7", ""},
		{"a:1~b", ""},
		{"web-1~", ""},
		{"", ""},
	} {
		o := quorumlock.Owner(tt.owner)
		testkit.Equal(t, o.Label(), tt.label, "label of %q", o)
		testkit.Equal(t, fmt.Sprint(o), tt.owner, "shown: two owners must not look the same")
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("refused", "holder", labelled)
	if !strings.Contains(b.String(), string(labelled)) {
		t.Errorf("the log line is %q", b.String())
	}
}

const labelled quorumlock.Owner = "web-1~6f1c2b3a-0000-4000-8000-000000000000:7"
