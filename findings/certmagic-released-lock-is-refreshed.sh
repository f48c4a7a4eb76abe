#!/usr/bin/env bash
# A process that has released a file lock of CertMagic keeps the next holder's lock alive, after that holder's crash, too.
#
# Expected: a lock whose holder was killed is stale 10 s after its last refresh, and the next waiter gets it.
# Seen:     so it is if nobody else had the lock before. But the first process's refresher outlasts its Unlock by up to 5 s. If
#           another process takes the lock in that time, the refresher finds a file and goes on: it refreshes the lock of
#           the dead holder again and again. No waiter gets it in 30 s, the first process included.
# Package:  github.com/caddyserver/certmagic v0.25.6
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
program github.com/caddyserver/certmagic@v0.25.6 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/caddyserver/certmagic"
)

func main() {
	ctx := context.Background()
	storage := &certmagic.FileStorage{Path: os.Args[2]}
	switch os.Args[1] {
	case "hold":
		check(storage.Lock(ctx, "name"))
		fmt.Println("locked")
		select {}
	case "had the lock before":
		check(storage.Lock(ctx, "name"))
		check(storage.Unlock(ctx, "name"))
	}

	holder := exec.Command(os.Args[0], "hold", os.Args[2])
	out, err := holder.StdoutPipe()
	check(err)
	check(holder.Start())
	out.Read(make([]byte, 8))
	check(holder.Process.Kill())
	holder.Wait()

	begin := time.Now()
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := storage.Lock(waiting, "name"); err != nil {
		fmt.Printf("a process that %s waits 30 s: %v\n", os.Args[1], err)
		return
	}
	fmt.Printf("a process that %s locks after 9 to 14 s: %v\n", os.Args[1], time.Since(begin) > 9*time.Second && time.Since(begin) < 14*time.Second)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
"$program" "never had it" "$work/storage1" >"$work/seen1" 2>"$work/log1" &
ends $!
seen=$(timeout 100 "$program" "had the lock before" "$work/storage2" 2>"$work/log2")
until_true test -s "$work/seen1"
recorded "$(cat "$work/seen1")
$seen" <<'END'
a process that never had it locks after 9 to 14 s: true
a process that had the lock before waits 30 s: context deadline exceeded
END
