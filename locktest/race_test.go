//go:build race

package locktest_test

const raceDetector = true
