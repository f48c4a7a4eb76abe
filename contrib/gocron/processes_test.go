package gocronlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/quorumlock"
	gocronlock "github.com/quorumlock/quorumlock/contrib/gocron"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// processVariable has the plan of a process that a test starts: this test binary again.
const processVariable = "QUORUMLOCK_TEST_GOCRON"

func TestMain(m *testing.M) {
	if p := os.Getenv(processVariable); p != "" {
		if err := runProcess(p); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runProcess runs one job with one scheduler. It prints a line when it is ready, reads from standard input when to start, and
// goes on until that ends. For each tick that it runs it prints when it asked for the lock and when it had it.
func runProcess(plan string) error {
	var skew, period, atLeast time.Duration
	var urls string
	if _, err := fmt.Sscan(plan, &skew, &period, &atLeast, &urls); err != nil {
		return err
	}
	client, err := redlock.Dial(strings.Split(urls, ",")...)
	if err != nil {
		return err
	}
	locker, err := gocronlock.NewLocker(func(job string) quorumlock.Locker { return client.Mutex("jobs:" + job) }, atLeast)
	if err != nil {
		return err
	}
	if _, err := client.Healthy(context.Background()); err != nil { // it is connected
		return err
	}
	fmt.Println("ready")
	var start int64
	if _, err := fmt.Scan(&start); err != nil {
		return err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(&loggedLocker{locker, time.UnixMicro(start)}))
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() {}), gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(time.UnixMicro(start).Add(skew))))
	if err != nil {
		return err
	}
	s.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Shutdown(); err != nil {
		return err
	}
	return client.Close()
}

// loggedLocker prints each grant.
type loggedLocker struct {
	gocron.Locker
	start time.Time
}

func (l *loggedLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	asked := time.Now()
	lock, err := l.Locker.Lock(ctx, job)
	if err == nil {
		fmt.Println(int64(asked.Sub(l.start)), int64(time.Since(l.start)))
	}
	return lock, err
}

// grant is what a line of loggedLocker says. Times are since the start of the first process's ticks.
type grant struct {
	process, tick  int
	asked, granted time.Duration
}

// runFleet runs three processes for so many ticks, and returns their grants in the order of time.
func runFleet(t *testing.T, ticks int, period, atLeast time.Duration) (grants []grant) {
	t.Helper()
	var urls []string
	for i := range 3 {
		server := embedded.Start(fmt.Sprintf("node-%d", i+1))
		t.Cleanup(server.Close)
		if err := server.Listen(); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "redis://"+server.Redis.Addr())
	}
	type process struct {
		*exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
	}
	var processes []process
	for i := range 3 {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d %s", processVariable, time.Duration(i)*skew, period, atLeast, strings.Join(urls, ",")))
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, process{c, in, bufio.NewScanner(out)})
	}
	for i, p := range processes {
		if !p.out.Scan() {
			t.Fatalf("process %d is not ready: %v", i, p.Wait())
		}
	}
	start := time.Now().Add(time.Second)
	for i, p := range processes {
		if _, err := fmt.Fprintln(p.in, start.UnixMicro()); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
	}
	time.Sleep(time.Until(start.Add(time.Duration(ticks) * period)))
	for _, p := range processes {
		_ = p.in.Close() // the process ends
	}
	for i, p := range processes {
		for p.out.Scan() {
			g := grant{process: i}
			if _, err := fmt.Sscan(p.out.Text(), &g.asked, &g.granted); err != nil {
				t.Fatalf("process %d printed %q", i, p.out.Text())
			}
			if g.tick = int((g.asked - time.Duration(i)*skew) / period); g.tick < ticks {
				grants = append(grants, g)
			}
		}
		if err := p.Wait(); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return int(a.granted - b.granted) })
	return grants
}

// Three processes, whose ticks are 30 ms apart, run a job once a tick. A busy machine may delay a process by more than atLeast
// allows for, as a clock may be late by more. But no two runs are ever less than atLeast apart.
func TestThreeProcessesRunAJobOnceATick(t *testing.T) {
	const period, atLeast = 160 * time.Millisecond, 130 * time.Millisecond
	grants := runFleet(t, ticks, period, atLeast)
	runs := make(map[int]int)
	twice, late := 0, 0
	for i, g := range grants {
		if runs[g.tick]++; runs[g.tick] == 2 {
			twice++
		}
		if g.granted-time.Duration(g.tick)*period >= atLeast {
			late++
		}
		if i > 0 && g.granted-grants[i-1].asked < atLeast {
			t.Errorf("two runs within %v, which is less than %v: %+v and %+v", g.granted-grants[i-1].asked, atLeast, grants[i-1], g)
		}
	}
	t.Logf("%d ticks: %d have run, %d of them twice; %d runs were later than atLeast allows for", ticks, len(runs), twice, late)
	if twice > late {
		t.Errorf("%d ticks ran twice, and only %d runs were late", twice, late)
	}
	if len(runs) < ticks/2 {
		t.Errorf("%d of %d ticks have run, want most", len(runs), ticks)
	}
}

// Without atLeast each process runs the job: its ticks are further apart than the job is long.
func TestThreeProcessesRunAJobTwiceWithoutAtLeast(t *testing.T) {
	runs := make(map[int]int)
	twice := 0
	for _, g := range runFleet(t, 10, 160*time.Millisecond, 0) {
		if runs[g.tick]++; runs[g.tick] == 2 {
			twice++
		}
	}
	if twice == 0 {
		t.Errorf("no tick ran twice: TestThreeProcessesRunAJobOnceATick cannot see what atLeast is for; ticks that ran: %d", len(runs))
	}
}
