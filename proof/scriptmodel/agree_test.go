package scriptmodel_test

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

var (
	commands = flag.Int("commands", 20_000, "how many random commands the model and the scripts are compared over")
	seed     = flag.Uint64("seed", 0, "compare over the sequence of this seed only")
	from     = flag.Uint64("from", 1, "the first seed")
)

// perSequence is the number of commands after which both sides start over.
const perSequence = 60

// The model agrees with the scripts, to the byte.
func TestModelAgreesWithTheScripts(t *testing.T) {
	compare(t, newLua(t), &model{eager: true}, *commands)
}

// compare fails if a side and the model differ over so many commands.
func compare(t *testing.T, real side, m *model, commands int) {
	t.Helper()
	began, played := time.Now(), 0
	first, last := *from, *from+uint64(max(1, commands/perSequence))
	if *seed != 0 {
		first, last = *seed, *seed+1
	}
	for s := first; s < last; s++ {
		sequence, differs := play(real, m, s)
		played += len(sequence)
		if differs != "" {
			sequence, differs = shrink(real, m, sequence, differs)
			t.Fatalf("-seed %d:\n%s%s", s, list(sequence), differs)
		}
	}
	t.Logf("%d commands, %.0f a second", played, float64(played)/time.Since(began).Seconds())
}

// play plays the sequence of a seed until the sides differ.
func play(real side, m *model, seed uint64) (sequence []command, differs string) {
	m.reset(epoch)
	g := newGenerator(seed, m)
	start(real, m, g.now)
	for i := range perSequence {
		c := g.first()
		if i > 0 {
			c = g.next()
		}
		sequence = append(sequence, c)
		if differs = step(real, m, c); differs != "" {
			break
		}
	}
	return sequence, differs
}

func start(real side, m *model, at scriptmodel.Time) {
	m.reset(at)
	real.reset(at)
}

var theirs, ours []byte

// step plays a command to both sides and returns their difference.
func step(real side, m *model, c command) string {
	reply, told := c.play(real)
	reply2, told2 := c.play(m)
	if c.call != nil && named[c.call.Script] == "inspect" {
		reply, reply2 = inOrder(reply), inOrder(reply2)
	}
	if !bytes.Equal(reply, reply2) && !bothNoLock(m, c, reply, reply2) {
		return fmt.Sprintf("the reply is %q, and the model's %q", reply, reply2)
	}
	if !slices.Equal(told, told2) {
		return fmt.Sprintf("the messages are %q, and the model's %q", told, told2)
	}
	theirs, ours = real.dump(theirs[:0]), m.dump(ours[:0])
	if !bytes.Equal(theirs, ours) {
		return fmt.Sprintf("the keys are\n%sand the model's\n%s", theirs, ours)
	}
	return ""
}

// bothNoLock reports whether both replies name a field that makes the key no lock, or an owner that
// makes it no latch. The server decides which one comes first.
func bothNoLock(m *model, c command, replies ...[]byte) bool {
	if c.call == nil {
		return false
	}
	v, _ := m.node.Peek(c.at, c.call.Keys()[0])
	for _, r := range replies {
		said := strings.TrimSuffix(string(r), "\r\n")
		name, ok := strings.CutPrefix(said, "-NOTALOCK ")
		if !ok {
			name, ok = strings.CutPrefix(said, "-WRONGKIND field ")
			ok = ok && isOwner(name)
		}
		if !ok || !slices.ContainsFunc(v.Fields, func(f scriptmodel.Field) bool { return f.Name == name }) {
			return false
		}
	}
	return true
}

// inOrder sorts the fields of the lock, which begin the reply of an inspection: each server has its
// own order.
func inOrder(reply []byte) []byte {
	words := strings.Split(string(reply), "\r\n")
	if len(words) < 2 || words[0] != "*7" {
		return reply
	}
	n, err := strconv.Atoi(strings.TrimPrefix(words[1], "*"))
	if err != nil || n <= 0 {
		return reply
	}
	fields := make([]string, n/2) // a field and its value are two words each
	for i := range fields {
		fields[i] = strings.Join(words[2+4*i:6+4*i], " ")
	}
	slices.Sort(fields)
	return fmt.Append(nil, fields, words[2+2*n:])
}

// shrink removes the commands of a sequence that its difference does not need.
func shrink(real side, m *model, sequence []command, differs string) ([]command, string) {
	replay := func(s []command) string {
		start(real, m, sequence[0].at)
		for _, c := range s {
			if d := step(real, m, c); d != "" {
				return d
			}
		}
		return ""
	}
	for size := len(sequence) / 2; size > 0; {
		smaller := false
		for i := 1; i+size <= len(sequence); { // without the first command the servers differ
			less := slices.Concat(sequence[:i], sequence[i+size:])
			if d := replay(less); len(less) > 0 && d != "" {
				sequence, differs, smaller = less, d, true
			} else {
				i += size
			}
		}
		if !smaller {
			size /= 2
		}
	}
	return sequence, differs
}

func list(sequence []command) string {
	var b strings.Builder
	for _, c := range sequence {
		fmt.Fprintf(&b, "  %v\n", c)
	}
	return b.String()
}
