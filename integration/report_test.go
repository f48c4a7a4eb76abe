package integration

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// measures are what may grow in a soak. After each round, when all clients are closed, they are
// measured; at the servers, all in all. Of the last quarter of the soak, the median may exceed that
// of the first quarter after the warm-up by a share and by a spare amount.
//
// Names are new in every strike, and a name's last key ends minutes after its use. So the number of
// keys rises until the oldest ones end, and then varies with the faults and the crowds: a flush
// takes them all. That is the warm-up. The heap, goroutines, files and connections do not vary.
var measures = []struct {
	what         string
	share, spare float64
}{
	{"heap after a collection, KiB", 0.1, 512},
	{"resident memory, KiB", 0.25, 16 << 10},
	{"goroutines", 0, 4},
	{"open files", 0, 4},
	{"connections at the servers", 0, 6},
	{"keys at the servers", 0.5, 500},
	{"memory of the servers, KiB", 0.25, 2048},
}

// growth is one of the measures in a soak.
type growth struct {
	what        string
	first, last float64 // the medians of the quarters
	most        float64 // that last may be
	judged      bool    // the soak was long enough
}

// growths compares the quarters of samples. The first value of a sample is its time, in seconds of
// the soak; the others are in the order of measures.
func growths(samples [][]float64) (all []growth) {
	if len(samples) == 0 {
		return nil
	}
	span := samples[len(samples)-1][0]
	judged := span >= 2*forgotten.Seconds() && len(samples) >= 16
	if judged {
		samples = slices.DeleteFunc(slices.Clone(samples), func(s []float64) bool { return s[0] < forgotten.Seconds() })
	}
	quarter := (len(samples) + 3) / 4
	for i, m := range measures {
		first, last := median(samples[:quarter], i+1), median(samples[len(samples)-quarter:], i+1)
		all = append(all, growth{m.what, first, last, first*(1+m.share) + m.spare, judged})
	}
	return all
}

func median(samples [][]float64, of int) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, s[of])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// A judge that cannot condemn proves nothing.
func TestGrowthIsFound(t *testing.T) {
	for name, leaks := range map[string]float64{"steady": 0, "a leak in every second round": 0.5} {
		t.Run(name, func(t *testing.T) {
			var samples [][]float64
			for n := range 180 {
				round := float64(n)
				s := []float64{40 * round}
				for i := range measures {
					value := 1000 + float64(n%7*(i%2))
					if measures[i].spare < 10 {
						value = 40 + leaks*round
					} else if leaks > 0 {
						value += measures[i].spare / 20 * round
					}
					s = append(s, value)
				}
				samples = append(samples, s)
			}
			for _, g := range growths(samples) {
				if !g.judged || (g.last > g.most) != (leaks > 0) {
					t.Errorf("%+v", g)
				}
			}
			for _, g := range growths(samples[:10]) {
				if g.judged {
					t.Errorf("%+v in a short soak", g)
				}
			}
		})
	}
}

// sample measures this process and the servers.
func (s *soak) sample(t *testing.T) []float64 {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers have freed
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	statm, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	must(t, err)
	files, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience) // not patiently: t goes on
	defer cancel()
	var connections, keys, memory int
	for _, server := range append(s.fleet.servers(), s.group.data[:]...) {
		info, err := server.admin.InfoMap(ctx, "clients").Result()
		must(t, err)
		n, err := strconv.Atoi(info["Clients"]["connected_clients"])
		must(t, err)
		connections += n
		size, err := server.admin.DBSize(ctx).Result()
		must(t, err)
		keys += int(size)
		memory += usedMemory(ctx, t, server.admin)
	}
	return []float64{
		time.Since(s.began).Seconds(),
		float64(mem.HeapAlloc >> 10), float64(pages * os.Getpagesize() >> 10), float64(runtime.NumGoroutine()), float64(len(files)),
		float64(connections), float64(keys), float64(memory >> 10),
	}
}

// count is the number of grants of a kind, and of leases whose loss the holder was told.
type count struct{ grants, losses int }

func (c count) plus(grants, losses int) count { return count{c.grants + grants, c.losses + losses} }

func (s *soak) count(grants []*grant) {
	for _, g := range grants {
		losses := 0
		if !g.told.IsZero() {
			losses = 1
		}
		s.counts[g.how] = s.counts[g.how].plus(1, losses)
	}
}

// report writes the report, if a file is named.
func (s *soak) report(t *testing.T, verdict string) {
	t.Helper()
	if *soakReport == "" {
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Soak on Redis %s: %s\n\n", version.text, verdict)
	fmt.Fprintf(&b, "%s to %s UTC, commit %s.\n", s.began.UTC().Format("2 January 2006, 15:04"), time.Now().UTC().Format("15:04"), commit())
	fmt.Fprintf(&b, "-soak %v -soak-seed %d -soak-rest %v: %d rounds, %d of them failed; %d strikes, each with locks of new names.\n",
		*soakFor, s.seed, *soakRest, s.rounds, s.failed, s.strikes)
	fmt.Fprintf(&b, "Five nodes, the quorum is four; one node is a master with a replica and a sentinel. The others got %d scripts.\n", s.fleet.scripts())
	b.WriteString("\n| fault | times |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, s.faults[name])
	}
	b.WriteString("\n| kind | grants | losses told |\n|---|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", kind, s.counts[kind].grants, s.counts[kind].losses)
	}
	fmt.Fprintf(&b, "\n%d of the grants were handed over by the holder before. For %v, the machine was too busy to judge time limits.\n",
		s.handed.Load(), machine.since(s.began).Round(time.Second))
	b.WriteString("\n| at rest | median of the first quarter | of the last | at most |\n|---|---|---|---|\n")
	for _, g := range growths(s.samples) {
		most := fmt.Sprintf("%.0f", g.most)
		if !g.judged {
			most = "the soak is too short"
		}
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %s |\n", g.what, g.first, g.last, most)
	}
	if err := os.WriteFile(*soakReport, b.Bytes(), 0o644); err != nil {
		t.Fatalf("-soak-report: %v: name a file in a directory that exists", err)
	}
}

// commit is that of the sources in this directory.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
