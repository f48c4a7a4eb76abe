package redisimage

import (
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPullEndsSoonWhereNothingComes(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration // the daemon reports progress; never if zero
		limit time.Duration
		says  string
	}{
		"silence":   {0, pullStall, "no progress for 20s"},
		"a trickle": {pullStall / 2, pullLimit, "not done after 3m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon()
			d.registry["public:1"] = true
			docker := d.chooser(t, "", new([]string)).Docker
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				d.pulling = func() io.Reader { return r }
				var reports sync.WaitGroup
				reports.Go(func() {
					for c.every > 0 {
						time.Sleep(c.every)
						if _, err := io.WriteString(w, `{"status":"Downloading"}`); err != nil {
							return
						}
					}
				})
				start := time.Now()
				err := pull(t.Context(), docker, "public:1")
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %s", err, c.says)
				}
				if took := time.Since(start); took != c.limit {
					t.Errorf("it took %v, want %v", took, c.limit)
				}
				reports.Wait()
			})
		})
	}
}

func TestFailureInTheMidstOfAPullIsOne(t *testing.T) {
	d := newDaemon()
	d.registry["public:1"] = true
	d.pulling = func() io.Reader {
		return strings.NewReader(`{"status":"Downloading"}{"errorDetail":{"message":"the disk is full"},"error":"the disk is full"}`)
	}
	err := pull(t.Context(), d.chooser(t, "", new([]string)).Docker, "public:1")
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v, want the daemon's own words", err)
	}
}
