//go:build !linux

package main

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
