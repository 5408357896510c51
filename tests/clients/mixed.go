// Mixes refused and good requests on the kept connections of Go's HTTP client: URL KEY COUNT.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	url, key := os.Args[1], os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	for number := 0; number < count; number++ {
		// Few large ones: each costs its connection.
		size := 2000
		if number%100 == 7 {
			size = 400000
		}
		expected := []int{200, 401, 404}[number%3]
		path := "/p/local/echo"
		if expected == 404 {
			path = "/nowhere"
		}
		request, err := http.NewRequest("POST", url+path, strings.NewReader("{}"+strings.Repeat(" ", size)))
		if err != nil {
			panic(err)
		}
		if expected != 401 {
			request.Header.Set("MLP-API-KEY", key)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(fmt.Sprintf("request %d: %v", number, err))
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != expected {
			panic(fmt.Sprintf("request %d: %d, not %d", number, answer.StatusCode, expected))
		}
	}
	fmt.Println(count, "answers")
}
