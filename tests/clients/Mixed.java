import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Mixes refused and good requests on the kept connections of Java's HTTP client: URL KEY COUNT. */
public class Mixed {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], key = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int number = 0; number < count; number++) {
            // Few large ones: each costs its connection.
            String body = "{}" + " ".repeat(number % 100 == 7 ? 400_000 : 2_000);
            int expected = new int[] {200, 401, 404}[number % 3];
            String path = expected == 404 ? "/nowhere" : "/p/local/echo";
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path))
                .POST(HttpRequest.BodyPublishers.ofString(body));
            if (expected != 401) {
                request.header("MLP-API-KEY", key);
            }
            int status = client.send(request.build(), HttpResponse.BodyHandlers.ofString()).statusCode();
            if (status != expected) {
                throw new IllegalStateException("request " + number + ": " + status + ", not " + expected);
            }
        }
        System.out.println(count + " answers");
    }
}
