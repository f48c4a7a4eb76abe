package main

import (
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// testBinary is this program: see beat, embeddedNode and linkTool.
var testBinary string

func TestMain(m *testing.M) {
	if isWatchdog(os.Args) || isRenumber(os.Args) || filepath.Base(os.Args[0]) == "quorumlock" {
		main()
	}
	if file := os.Getenv(beatFile); file != "" {
		beat(file, os.Getenv(beatMode))
	}
	if dir := os.Getenv(nodeDir); dir != "" {
		if err := embeddedNode(dir); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	var err error
	if testBinary, err = os.Executable(); err != nil {
		panic(err)
	}
	clean, err := linkTool()
	if err != nil {
		panic(err)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // otherwise ignored under nohup
	redis.SetLogger(silent{})
	_ = flag.Set("test.parallel", "16") // the tests mostly wait; -parallel overrides this
	// go-redis's redial of a dead node looks once a second whether the client is closed, and ends
	// then.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"), goleak.Cleanup(func(status int) {
		clean()
		os.Exit(status)
	}))
}
