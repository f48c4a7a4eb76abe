// Package simulation runs the library, go-redis and the Lua under hostile schedules, and checks what is promised.
//
// One seed makes one schedule, in a bubble of testing/synctest. See newPlan for what may happen, and watch for what is
// checked.
package simulation
