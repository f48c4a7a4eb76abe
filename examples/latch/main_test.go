package main

func Example() {
	main()
	// Output: all parts are done
}
