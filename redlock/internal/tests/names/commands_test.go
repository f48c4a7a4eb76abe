package names

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// counts has how often each command ran.
type counts map[string]int

func (c counts) String() string {
	var b strings.Builder
	for _, command := range slices.Sorted(maps.Keys(c)) {
		if c[command] > 0 {
			fmt.Fprintf(&b, "%s %d, ", command, c[command])
		}
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// designed returns the tables of docs/design/commands.md: the commands by heading, script and
// column.
func designed(t *testing.T) map[string]counts {
	text, err := os.ReadFile("../../../../docs/design/commands.md")
	testkit.Must(t, err, "ReadFile")
	all := make(map[string]counts)
	var heading, script string
	var columns []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		m := regexp.MustCompile("^`([a-z_]+)\\.lua`.*:$").FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "## "):
			heading = line[3:]
		case m != nil:
			script = m[1]
		case !strings.HasPrefix(line, "|") || cells[0] == "---":
		case cells[0] == "command":
			columns = cells
		default:
			for i := 1; i < len(cells)-1; i++ {
				of := strings.Join([]string{heading, script, columns[i]}, ", ")
				if all[of] == nil {
					all[of] = make(counts)
				}
				n, err := strconv.Atoi(cmp.Or(cells[i], "0"))
				testkit.Must(t, err, "Atoi")
				all[of][cells[0]] = n
			}
		}
	}
	return all
}

// recorder has the commands of one server, by script.
type recorder struct {
	mu      sync.Mutex
	scripts []string // that ran
	ran     []counts // of each script, and first those before any
}

// record records the commands of a server until the end of the test.
func record(s *embedded.Server) *recorder {
	r := &recorder{}
	r.reset()
	s.Commands(func(command string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if command == "EVALSHA" || command == "EVAL" {
			r.ran = append(r.ran, make(counts))
			return
		}
		r.ran[len(r.ran)-1][command]++
	})
	s.Before(func(run embedded.Run) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.scripts = append(r.scripts, run.Script)
	})
	return r
}

func (r *recorder) reset() { _, _ = r.take() }

// take returns what was recorded since the last call.
func (r *recorder) take() (scripts []string, ran []counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	scripts, ran = r.scripts, r.ran
	r.scripts, r.ran = nil, []counts{{}}
	return scripts, ran
}

// A caller whom nobody contends with runs the commands that docs/design/commands.md lists, and no
// other.
func TestALonePairRunsNoOtherCommand(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		want := designed(t)
		r := record(servers[0])
		kinds := map[string]func(name string) quorumlock.Locker{
			"A mutex":     func(name string) quorumlock.Locker { return c.Mutex(name) },
			"A reader":    func(name string) quorumlock.Locker { return c.RWMutex(name).RLocker() },
			"A semaphore": func(name string) quorumlock.Locker { return c.Semaphore(name, 1) },
		}
		for kind, of := range kinds {
			know(t, of("known "+kind))
			l := of(kind)
			for _, state := range []struct {
				name string
				at   time.Duration // after the beginning of a minute
			}{{"new", 10 * time.Second}, {"in use", 20 * time.Second}, {"first of a minute", 130 * time.Second}} {
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(state.at)))
				r.reset()
				testkit.Unlock(t, testkit.Lock(t, l))
				time.Sleep(time.Second) // the last node answers
				scripts, ran := r.take()
				if len(scripts) != 2 || len(ran) != 3 || len(ran[0]) > 0 {
					t.Fatalf("%s, %s: a pair ran %v, with %v", kind, state.name, scripts, ran)
				}
				for i, script := range scripts {
					table := fmt.Sprintf("%s, %s, %s", kind, script, state.name)
					if got, want := ran[1+i].String(), want[table].String(); got != want {
						t.Errorf("%s: the script ran\n%s\nand docs/design/commands.md has\n%s", table, got, want)
					}
					delete(want, table)
				}
			}
		}
		mutex := kinds["A mutex"]("renewed")
		know(t, mutex)
		lease := testkit.Lock(t, mutex)
		r.reset()
		testkit.Must(t, lease.Extend(t.Context()), "Extend")
		time.Sleep(time.Second)
		table := "A mutex, renew, renewal"
		scripts, ran := r.take()
		if got, want := ran[1].String(), want[table].String(); len(ran) != 2 || got != want {
			t.Errorf("%s: the scripts %v ran\n%v\nand docs/design/commands.md has\n%s", table, scripts, ran, want)
		}
		testkit.Unlock(t, lease)
		if delete(want, table); len(want) > 0 {
			t.Errorf("no script has run for %v", slices.Sorted(maps.Keys(want)))
		}
	})
}

// know makes the nodes know the scripts of a pair and of a renewal.
func know(t *testing.T, l quorumlock.Locker) {
	lease := testkit.Lock(t, l)
	testkit.Must(t, lease.Extend(t.Context()), "Extend")
	testkit.Unlock(t, lease)
}
