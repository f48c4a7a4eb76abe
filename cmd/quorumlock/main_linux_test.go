package main

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// testBinary is this program: see beat.
var testBinary string

func TestMain(m *testing.M) {
	if file := os.Getenv(beatFile); file != "" {
		beat(file, os.Getenv(beatMode))
	}
	var err error
	if testBinary, err = os.Executable(); err != nil {
		panic(err)
	}
	clean, err := buildTool()
	if err != nil {
		panic(err)
	}
	redis.SetLogger(silent{})
	// go-redis's redial of a dead node looks once a second whether the client is closed, and ends then.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"), goleak.Cleanup(func(status int) {
		clean()
		os.Exit(status)
	}))
}
