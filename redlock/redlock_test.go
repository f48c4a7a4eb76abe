package redlock_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m) }
