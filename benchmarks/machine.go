package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// describe returns a line about the machine and the versions of the programs.
func describe(ctx context.Context, f *fleet) string {
	redis, err := f.redis.version(ctx)
	if err != nil {
		redis = err.Error()
	}
	parts := []string{fmt.Sprintf("%d CPUs, %s, %s/%s, Redis %s", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, redis)}
	if out, err := exec.CommandContext(ctx, "etcd", "--version").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		parts = append(parts, strings.Replace(first, "etcd Version: ", "etcd ", 1))
	}
	if _, program, err := postgresPrograms(); err == nil {
		if out, err := exec.CommandContext(ctx, program, "--version").Output(); err == nil {
			parts = append(parts, "PostgreSQL "+strings.Fields(string(out))[2])
		}
	}
	if jars, err := filepath.Glob(strings.Replace(zookeeperJar, ".jar", "-[0-9]*.jar", 1)); err == nil && len(jars) > 0 {
		parts = append(parts, strings.TrimSuffix(filepath.Base(jars[0]), ".jar"))
	}
	return strings.Join(parts, ", ") + "\nClient libraries: " + strings.Join(libraries(), ", ") + "\nMeasured on " + time.Now().Format("2 January 2006") + ", " + commit(ctx)
}

// commit names the commit of this checkout, and says if it was changed since.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "of a checkout without git"
	}
	return "commit " + strings.TrimSpace(string(out))
}

// libraries are the client libraries that this program was built with.
func libraries() []string {
	var all []string
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return nil
	}
	for _, d := range info.Deps {
		for _, known := range []string{"go-redis/v9", "redsync/v4", "redis/rueidis", "etcd/client/v3", "pgx/v5", "go-zookeeper/zk"} {
			if strings.HasSuffix(d.Path, known) {
				all = append(all, strings.TrimSuffix(strings.TrimPrefix(d.Path, "github.com/"), "/v9")+" "+d.Version)
			}
		}
	}
	return all
}

// syncTime is how long it takes to write and sync 4 KB in a directory: the median of some.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // it is deleted with the directory
	var all sample
	for range 50 {
		start := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(start))
	}
	return all.quantile(0.5), nil
}

// noise measures how busy the machine was with other processes.
type noise struct {
	fleets []*fleet
	start  time.Time
	busy   time.Duration // of all processors, since the machine was started
	own    time.Duration
}

func listen(fleets []*fleet) noise {
	n := noise{fleets: fleets, start: time.Now(), busy: busyTime()}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			n.own += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	for _, f := range fleets {
		for _, pid := range f.pids() {
			n.own += processTime(pid)
		}
	}
	return n
}

// others is the share of the processors that other programs have used since.
func (n noise) others() float64 {
	now := listen(n.fleets)
	available := now.start.Sub(n.start) * time.Duration(runtime.NumCPU())
	if n.busy == 0 || available == 0 {
		return 0
	}
	return max(0, float64(now.busy-n.busy-(now.own-n.own))/float64(available))
}

// busyTime is the time that all processors together were not idle. It is 0 where there is no /proc.
func busyTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(stat), "\n")
	var busy time.Duration
	for i, field := range strings.Fields(first) {
		const idle, wait, guest = 4, 5, 9 // guests' time is part of the users'
		if n, err := strconv.Atoi(field); err == nil && i != idle && i != wait && i < guest {
			busy += time.Duration(n) * tick
		}
	}
	return busy
}
